module retryproxy

go 1.26
