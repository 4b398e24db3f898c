# Deletes the DaemonSet of the node agents and waits until their pods are gone. Arguments: folder of the account, URL of the server.
set -eu
agents="$2/apis/apps/v1/namespaces/$(cat "$1/namespace")/daemonsets/weft-node-agent"
# The answer with the status in its last line.
ask() {
  curl -sS --max-time 30 --retry 3 --cacert "$1/ca.crt" -H "Authorization: Bearer $(cat "$1/token")" \
    --write-out '\n%{http_code}' --request "$2" "$3"
}
answer=$(ask "$1" DELETE "$agents?propagationPolicy=Foreground")
while :; do
  case $answer in
    *200 | *202) ;;
    *404) exit 0 ;;
    *)
      echo "$agents: $answer" >&2
      exit 1
      ;;
  esac
  sleep 1
  answer=$(ask "$1" GET "$agents")
done
