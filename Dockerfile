# A static retryproxy and nothing beside it but CA certificates and a folder
# for temporary files. Inside a container it needs a config that listens beyond
# loopback and says who may call; example/ has one.
FROM --platform=$BUILDPLATFORM golang:1.26-alpine AS build
ARG TARGETOS=linux
ARG TARGETARCH
ARG VERSION=dev
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X main.version=$VERSION" -o /out/retryproxy . \
 && mkdir /out/tmp /out/data

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build --chown=65532:65532 /out/tmp /tmp
COPY --from=build --chown=65532:65532 /out/data /data
COPY --from=build /out/retryproxy /retryproxy
USER 65532:65532
# Keyed calls that survive the container, and the CA: serve -data /data
VOLUME /data
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s CMD ["/retryproxy", "health"]
ENTRYPOINT ["/retryproxy"]
CMD ["serve"]
