#!/bin/sh
# A bot that knows nothing of retries: it places an order each two seconds, with
# a key that is the same when it asks for the same order again, and looks
# something up in between. Its labels are in http_proxy.
n=0
while :; do
  n=$((n + 1))
  printf 'order %s: ' "$n"
  curl -sS -w ' %{http_code} after %{time_total} s\n' -H "X-Idempotency-Key: bot-$$-$n" \
    -d "item=$n" "http://upstream:9000/order?lose=$((n % 2))" | tr -d '\n'
  echo
  printf 'look-up:  '
  curl -sS -w ' %{http_code} after %{time_total} s\n' "http://upstream:9000/fail/503?times=1&id=look" | tr -d '\n'
  echo
  sleep 2
done
