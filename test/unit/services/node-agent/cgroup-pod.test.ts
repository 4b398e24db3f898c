import test from 'ava';
import { podOfCgroups } from '../../../../services/node-agent/netns/cgroup-pod.ts';

const UID = 'a4b0e7a2-0e5e-4a6c-9a3e-0a5d7c1b2f30';
const UNDERSCORES = UID.replaceAll('-', '_');
const STATIC = 'd41d8cd98f00b204e9800998ecf8427e';
const CONTAINER = 'c0ffee'.padEnd(64, '0');

const CASES: readonly [string, string, string | null][] = [
  [
    'containerd with systemd',
    `0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod${UNDERSCORES}.slice/cri-containerd-${CONTAINER}.scope`,
    UID,
  ],
  ['containerd with cgroupfs', `0::/kubepods/burstable/pod${UID}/${CONTAINER}`, UID],
  [
    'containerd beside systemd',
    `0::/system.slice/containerd.service/kubepods-burstable-pod${UNDERSCORES}.slice:cri-containerd:${CONTAINER}`,
    UID,
  ],
  ['CRI-O', `0::/kubepods.slice/kubepods-pod${UNDERSCORES}.slice/crio-${CONTAINER}.scope`, UID],
  ['CRI-O with cgroupfs', `0::/kubepods/besteffort/pod${UID}/crio-${CONTAINER}`, UID],
  [
    'CRI-O, version 1',
    `3:cpuset:/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod${UNDERSCORES}.slice/crio-${CONTAINER}.scope
1:name=systemd:/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod${UNDERSCORES}.slice/crio-${CONTAINER}.scope
`,
    UID,
  ],
  ['Docker', `0::/kubepods/pod${UID}/${CONTAINER}`, UID],
  [
    'Docker with systemd',
    `0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod${UNDERSCORES}.slice/docker-${CONTAINER}.scope`,
    UID,
  ],
  [
    'Docker, version 1 beside an empty version 2',
    `11:memory:/kubepods/besteffort/pod${UID}/${CONTAINER}\n0::/system.slice/docker.service\n`,
    UID,
  ],
  ['containerd in kind', `0::/kubelet/kubepods/burstable/pod${UID}/${CONTAINER}`, UID],
  [
    'version 1, where all lines agree',
    `12:cpu:/kubepods/pod${UID}/${CONTAINER}\n1:name=systemd:/kubepods/pod${UID}/${CONTAINER}\n`,
    UID,
  ],
  [
    'lines of different containers',
    `2:cpu:/kubepods/pod${UID}/${CONTAINER}\n1:x:/kubepods/pod${UID}/${'a'.repeat(64)}`,
    null,
  ],
  ['a group inside the container', `0::/kubepods/pod${UID}/${CONTAINER}/init`, UID],
  [
    'CRI-O with crun',
    `0::/kubepods.slice/kubepods-pod${UNDERSCORES}.slice/crio-${CONTAINER}.scope/container`,
    UID,
  ],
  [
    'a systemd in a container',
    `0::/kubepods.slice/kubepods-pod${UNDERSCORES}.slice/cri-containerd-${CONTAINER}.scope/system.slice/sshd.service`,
    UID,
  ],
  [
    'a static pod',
    `0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod${STATIC}.slice/cri-containerd-${CONTAINER}.scope`,
    STATIC,
  ],
  ['a group that is no container', `0::/kubepods/pod${UID}/${CONTAINER}x/init`, null],
  ['the pod alone', `0::/kubepods/pod${UID}`, null],
  ['no pod', '0::/system.slice/kubelet.service', null],
  ['a container that is no pod', `0::/docker/${CONTAINER}`, null],
  ['a container that is no pod, with systemd', `0::/system.slice/docker-${CONTAINER}.scope`, null],
  ['a container that is no pod, of CRI-O', `0::/machine.slice/crio-${CONTAINER}.scope`, null],
  ['a uid that is none', `0::/kubepods/pod1234/${CONTAINER}`, null],
  ['nothing', '', null],
];

for (const [name, text, uid] of CASES) {
  test(name, (t) => {
    t.is(podOfCgroups(text), uid);
  });
}
