"""Plays the steps on standard input with one of Python's clients.

A step is a line "METHOD<tab>URL<tab>KEY<tab>BODY"; its result is a line
"STATUS<tab>RETRY COUNT<tab>RETRY REASON<tab>REPLAYED<tab>BODY", with status 0
and the error when there was no answer. The proxy and the CA come from the
environment, as the client reads them.
"""

import base64
import http.client
import os
import ssl
import sys
import urllib.error
import urllib.parse
import urllib.request

TIMEOUT = 60


def with_urllib(method, url, headers, body):
    request = urllib.request.Request(url, body, headers, method=method)
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as failed:
        answer = failed
    with answer:
        return answer.status, answer.headers, answer.read()


def with_requests(session):
    def call(method, url, headers, body):
        answer = session.request(method, url, headers=headers, data=body, timeout=TIMEOUT)
        return answer.status_code, answer.headers, answer.content

    return call


def with_http_client(absolute):
    """http.client knows no proxy: the caller names it, and what to send to it."""
    proxy = urllib.parse.urlsplit(os.environ["PROXY"])
    user = urllib.parse.unquote(f"{proxy.username}:{proxy.password}")
    login = {"Proxy-Authorization": "Basic " + base64.b64encode(user.encode()).decode()}
    kept = {}

    def connect(target):
        if target.scheme == "http" or absolute:
            return http.client.HTTPConnection(proxy.hostname, proxy.port, timeout=TIMEOUT)
        trust = ssl.create_default_context(cafile=os.environ["CA"])
        c = http.client.HTTPSConnection(proxy.hostname, proxy.port, timeout=TIMEOUT, context=trust)
        c.set_tunnel(target.hostname, 443, login)
        return c

    def call(method, url, headers, body):
        target = urllib.parse.urlsplit(url)
        connection = kept.setdefault(target.scheme, connect(target))
        tunnel = target.scheme == "https" and not absolute
        try:
            if tunnel:
                connection.request(method, target.path, body, headers)
            else:
                connection.request(method, url, body, {**headers, **login})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        except Exception:
            connection.close()
            kept.pop(target.scheme)
            raise

    return call


def client(name):
    if name == "urllib":
        return with_urllib
    if name == "requests":
        import requests

        return with_requests(requests.Session())
    return with_http_client(absolute=name == "http.client-absolute")


def main():
    call = client(sys.argv[1])
    for line in sys.stdin:
        method, url, key, body = line.rstrip("\n").split("\t")
        headers = {"X-Idempotency-Key": key} if key else {}
        try:
            status, fields, text = call(method, url, headers, body.encode() if body else None)
            names = ("X-Retry-Count", "X-Retry-Reason", "Idempotency-Replayed")
            result = [str(status)] + [fields.get(n) or "" for n in names] + [text.decode()]
        except Exception as error:
            result = ["0", "", "", "", f"{type(error).__name__}: {error}"]
        print("\t".join(" ".join(r.split()) for r in result), flush=True)


main()
