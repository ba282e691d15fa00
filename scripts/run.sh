#!/usr/bin/env bash
# Starts the gateway on this machine, in front of UPSTREAM or, without one, of the sample payments API, and says what to
# try. Ctrl-C stops what was started. Called by `make run`, which builds first.
set -euo pipefail
cd "$(dirname "$0")/.."

listen=${LISTEN:-127.0.0.1:8080}
admin=${ADMIN:-127.0.0.1:8081}
upstream=${UPSTREAM:-}
store=${STORE:-journal:./oncekey-data}
sample_port=9090
bin=build/release
pids=()

stop() {
  trap - INT HUP TERM EXIT
  # The gateway first, so that it can still finish what it has sent to the API.
  for pid in "${pids[@]}"; do
    kill -TERM "$pid" 2>/dev/null || continue
    wait "$pid" 2>/dev/null || true
  done
}
trap stop EXIT
trap 'exit 0' INT
trap 'exit 129' HUP
trap 'exit 143' TERM

# In a session of its own: Ctrl-C goes to a whole process group, and a gateway that gets it beside our TERM would take
# the two for an order to end at once.
start() { setsid "$@" & }

# Whether a process listens on HOST:PORT already. An address of every interface is asked on loopback.
taken() {
  local host=${1%:*} port=${1##*:}
  host=${host#[}
  host=${host%]}
  case $host in 0.0.0.0) host=127.0.0.1 ;; ::) host=::1 ;; esac
  [[ $port != 0 ]] && (exec 3<>"/dev/tcp/$host/$port") 2>/dev/null
}

refuse_if_taken() { # ADDRESS, what for, how to choose another
  if taken "$1"; then
    echo "make run: $1, where the $2 would listen, is taken by another process. $3" >&2
    exit 1
  fi
}

# Waits up to ten seconds for URL to answer; ends with the reason if the process is gone before.
wait_for() { # URL, pid, name
  for _ in $(seq 100); do
    if curl -s -f -o /dev/null --max-time 1 "$1"; then return 0; fi
    if ! kill -0 "$2" 2>/dev/null; then
      echo "make run: $3 ended at once; its reason is above" >&2
      exit 1
    fi
    sleep 0.1
  done
  echo "make run: $3 did not get ready within ten seconds" >&2
  exit 1
}

refuse_if_taken "$listen" "gateway" "Choose another: make run LISTEN=127.0.0.1:8090"
refuse_if_taken "$admin" "admin listener" "Choose another: make run ADMIN=127.0.0.1:8091"
sample_pid=
if [[ -z $upstream ]]; then
  refuse_if_taken "127.0.0.1:$sample_port" "sample payments API" \
    "Stop it, or put the gateway in front of it: make run UPSTREAM=http://127.0.0.1:$sample_port"
  echo "make run: starting the sample payments API on 127.0.0.1:$sample_port"
  start "$bin/payments_api" --port "$sample_port"
  sample_pid=$!
  pids=("$sample_pid")
  wait_for "http://127.0.0.1:$sample_port/executions" "$sample_pid" "the sample payments API"
  upstream=http://127.0.0.1:$sample_port
fi

echo "make run: starting the gateway on $listen; its log follows"
start "$bin/oncekey" serve --listen "$listen" --admin "$admin" --upstream "$upstream" --store "$store"
gateway_pid=$!
pids=("$gateway_pid" ${sample_pid:+"$sample_pid"})
wait_for "http://$admin/readyz" "$gateway_pid" "the gateway"

gateway=$listen
case $gateway in 0.0.0.0:*) gateway=127.0.0.1:${gateway##*:} ;; esac
try="curl -s -w '%{http_code} [%header{idempotent-replayed}]\\n' -H 'Authorization: Bearer alice'"
echo
echo "Oncekey listens on http://$gateway in front of $upstream."
echo "Health and metrics: http://$admin/readyz, http://$admin/metrics. Records: $store. Ctrl-C stops it."
if [[ -n $sample_pid ]]; then
  # A key of its own for every start: the records of the last one are still there and would be replayed.
  key=$(date +%s)
  cat <<LINES

Try it, in another terminal. A charge:
  $try -H 'Idempotency-Key: order-$key' --json '{"amount":2000,"currency":"eur"}' $gateway/charges
The retry: the same line again. The same answer, marked [true], and no second charge:
  curl -s $gateway/executions
A different body under the same key is refused:
  $try -H 'Idempotency-Key: order-$key' --json '{"amount":9999,"currency":"eur"}' $gateway/charges
Two at once: one executes, the other gets 409 with a Retry-After:
  for i in 1 2; do $try -H 'Idempotency-Key: twice-$key' --json '{"amount":500,"currency":"eur","delay_ms":2000}' $gateway/charges & done; wait

LINES
else
  cat <<LINES

Send a request of yours twice through http://$gateway, with these two headers; the second answer is a replay:
  -H 'Authorization: Bearer alice' -H 'Idempotency-Key: $(date +%s)'

LINES
fi

# Ends when either of them does; the trap stops the other.
wait -n "${pids[@]}"
