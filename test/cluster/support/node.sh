#!/bin/sh
# Turns the namespaces that it is started in (network, mounts, processes) into a node of a cluster. Its first process is this
# script, later kubelet. NODE_DIR holds the settings that node.ts has written, and all that the node writes: above the machine's own
# tree, which the node sees and cannot change. Started again with the same folder it is the node after a reboot.
set -eu
: "$NODE_DIR" "$NODE_NAME" "$NODE_IPS" "$POD_RANGES" "$KUBELET" "$KUBE_PROXY"

layer=$NODE_DIR/layer root=$NODE_DIR/layer/root
mount --make-rprivate /
mkdir -p "$layer/upper" "$layer/work" "$root" "$NODE_DIR/containerd" "$NODE_DIR/kubelet"
mount -t overlay -o "lowerdir=/,upperdir=$layer/upper,workdir=$layer/work" node "$root"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 run "$root/run"
mount --bind "$NODE_DIR" "$root$NODE_DIR"
for name in containerd kubelet; do
  mkdir -p "$root/var/lib/$name"
  mount --bind "$NODE_DIR/$name" "$root/var/lib/$name"
done
# kubelet sets these for the whole machine unless they are so. Let it see what it wants.
wanted() {
  echo "$2" >"$layer/$(basename "$1")"
  mount --bind "$layer/$(basename "$1")" "$root/proc/sys/$1"
}
wanted vm/overcommit_memory 1
wanted vm/panic_on_oom 0
wanted kernel/panic 10
wanted kernel/panic_on_oops 1
wanted kernel/keys/root_maxkeys 1000000
wanted kernel/keys/root_maxbytes 25000000
mkdir -p "$root/old"
cd "$root"
pivot_root . old
cd /
umount -l /old
rmdir /old
mount --make-rshared /

mkdir -p /run/netns /run/lock /etc/cni /opt/cni
if ! [ -e "$NODE_DIR/installed" ]; then
  rm -rf /etc/cni/net.d /opt/cni/bin /var/lib/cni /var/log/pods /var/log/containers
  cp -r "$NODE_DIR/cni/net.d" /etc/cni/net.d
  cp -r "$NODE_DIR/cni/bin" /opt/cni/bin
fi
set -- net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0
# Where pods of a node are on one bridge, their packets to a service must pass its rules on both ways.
if [ -e /proc/sys/net/bridge ]; then set -- "$@" net.bridge.bridge-nf-call-iptables=1 net.bridge.bridge-nf-call-ip6tables=1; fi
sysctl -qw "$@"

containerd --config "$NODE_DIR/containerd.toml" >>"$NODE_DIR/containerd.log" 2>&1 &
"$KUBE_PROXY" --kubeconfig="$NODE_DIR/kubeconfig" --hostname-override="$NODE_NAME" --proxy-mode=iptables \
  --cluster-cidr="$POD_RANGES" --conntrack-max-per-core=0 >>"$NODE_DIR/kube-proxy.log" 2>&1 &
until ctr version >/dev/null 2>&1; do sleep 0.1; done
if ! [ -e "$NODE_DIR/installed" ]; then
  for archive in "$NODE_DIR"/images/*.tar; do ctr -n k8s.io images import "$archive" >/dev/null; done
fi
: >"$NODE_DIR/installed"
exec "$KUBELET" --config="$NODE_DIR/kubelet.yaml" --kubeconfig="$NODE_DIR/kubelet.kubeconfig" --hostname-override="$NODE_NAME" \
  --node-ip="$NODE_IPS" --v=2 >>"$NODE_DIR/kubelet.log" 2>&1
