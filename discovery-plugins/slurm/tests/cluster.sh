#!/usr/bin/env bash
# A Slurm cluster of three nodes on this machine, for tests; needs root and Debian's slurm-wlm.
#
# Usage: cluster.sh DIR PORT     the controller listens on PORT, the nodes n1 to n3 on the three behind it
# Prints "ready" when all nodes are idle, with its configuration in DIR/slurm.conf. Ends, with all it started, when
# its standard input does.
set -euo pipefail
dir=$1 port=$2

mkdir -p "$dir"/{munge,state,spool,log}
chmod 755 "$dir" "$dir/munge"
head -c 1024 /dev/urandom >"$dir/munge/key"
chmod 400 "$dir/munge/key"

cat >"$dir/slurm.conf" <<CONF
ClusterName=test
# Numbers that no cluster beside this one has, and that are none of its ports: the example makes a port of them.
FirstJobId=$((port + 10))
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
SlurmctldPidFile=$dir/ctld.pid
SlurmdPidFile=$dir/%n.pid
SlurmctldLogFile=$dir/log/ctld
SlurmdLogFile=$dir/log/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
ReturnToService=2
SlurmdParameters=config_overrides
MpiDefault=none
NodeName=n[1-3] NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=$((port + 1))-$((port + 3)) CPUs=2 RealMemory=500
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF="$dir/slurm.conf"

started=()
finish() {
    scancel --state=RUNNING --user=root 2>/dev/null || true
    for _ in {1..50}; do
        [ -n "$(squeue --noheader 2>/dev/null)" ] || break
        sleep 0.1
    done
    for process in "${started[@]}"; do kill "$process" 2>/dev/null || true; done
    for process in "${started[@]}"; do
        timeout 5 tail --pid="$process" -f /dev/null || kill -KILL "$process" 2>/dev/null || true
    done
}
trap finish EXIT

munged --foreground --force --key-file="$dir/munge/key" --socket="$dir/munge/socket" \
    --pid-file="$dir/munge/pid" --log-file="$dir/munge/log" --seed-file="$dir/munge/seed" </dev/null &>/dev/null &
started+=($!)
until [ -S "$dir/munge/socket" ]; do sleep 0.05; done
slurmctld -D </dev/null &>/dev/null &
started+=($!)
for node in n1 n2 n3; do
    slurmd -D -N "$node" </dev/null &>/dev/null &
    started+=($!)
done

for _ in {1..200}; do
    if [ "$(sinfo --noheader --Node --format=%T 2>/dev/null | sort -u)" = idle ]; then
        echo ready
        cat >/dev/null
        exit
    fi
    sleep 0.1
done
echo "the nodes do not come up; see $dir/log" >&2
exit 1
