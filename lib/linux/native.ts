/** Loads the addon and turns its failures into MeshErrors. Nothing outside this folder imports it. */
import { createRequire } from 'node:module';
import { MeshError, errorText } from '../errors/mesh-error.ts';
import { installedPath } from '../files/installation.ts';

/** An open poll of poll.cc. It is opaque: the property exists only for the type checker. */
export interface PollHandle {
  readonly kind: 'poll';
}

/** An environment's connection to the splice pump; opaque as above. */
export interface PumpHandle {
  readonly kind: 'pump';
}

/** Held lines of a descriptor; opaque as above. */
export interface OutputHandle {
  readonly kind: 'output';
}

/** An environment's connection to a thread that carries tunnels; opaque as above. */
export interface CarryHandle {
  readonly kind: 'carry';
}

/** A connection that a thread carries from now on (addon/carry-binding.cc): of TLS 1.3, or a local socket whose other end encrypts. */
export interface CarryLinkOptions {
  readonly fd: number;
  readonly isServer: boolean;
  /** The standard name of the cipher suite; `none`, for local sockets only: no records, and the next six fields are unused. */
  readonly cipher: string;
  /** The first application traffic secrets; copied. */
  readonly readSecret: Buffer;
  readonly writeSecret: Buffer;
  /** Records read and written under these secrets. */
  readonly readSequence: number;
  readonly writeSequence: number;
  /** Ciphertext that was read from the socket, and content that was decrypted already. */
  readonly unread: Buffer;
  readonly received: Buffer;
  /** Largest frame, and largest HEADERS or CONTINUATION, that the peer may send. */
  readonly maxFrameSize: number;
  readonly maxBlockBytes: number;
  /** Receive windows of a new stream and of the connection. */
  readonly streamWindow: number;
  readonly connectionWindow: number;
  /** Records between two KeyUpdates; 0 = the default. */
  readonly rekeyRecords: number;
}

/** Bytes from the socket and from the stream, and the milliseconds since the first of each, null before. */
export type CarryCounts = readonly [number, number, number | null, number | null];

/** Counters of all threads that carry, since the process began; links and streams are those of now. */
export interface CarryStats {
  readonly threads: number;
  readonly links: number;
  readonly streams: number;
  readonly recordsRead: number;
  readonly recordsWritten: number;
  /** KeyUpdates of peers, and our own. */
  readonly updatesRead: number;
  readonly updatesWritten: number;
}

/** Counters of the splice pump of the process. */
export interface PumpStats {
  readonly joins: number;
  readonly pipesOpen: number;
  readonly pipesHeld: number;
  /** Bytes moved through user space because no pipe was free, since the process began. */
  readonly copiedBytes: number;
}

/** The policy routing of one address family in a namespace; marks and masks are unsigned. */
export interface PolicyRouting {
  readonly rules: readonly {
    readonly priority: number;
    readonly mark: number;
    readonly mask: number;
    readonly table: number;
    /** True when packets that match are refused. */
    readonly prohibits: boolean;
  }[];
  /** Routes of the requested table. `local`: the route delivers to this host. */
  readonly routes: readonly { readonly local: boolean; readonly prefixLength: number }[];
}

/** Addresses and ports of the peer, of our end and, if requested and known, of the original destination. */
export type AcceptedNames =
  | readonly [string, number, string, number]
  | readonly [string, number, string, number, string, number];

/** An accepted descriptor; its names, null if the peer is gone, or the call that failed to tell them. */
export type QueuedConnection = readonly [fd: number, names: AcceptedNames | string | null];

/** Takes an accepted descriptor: with its names, with the call that failed to tell them, or with null alone if the peer is gone. */
export type OnAccepted = (
  fd: number,
  failedCall: string | null,
  ...names: AcceptedNames | readonly []
) => void;

/** The functions of addon/*.cc. Descriptors are plain numbers; their holder owns them. */
export interface NativeModule {
  openNetns(path: string): number;
  netnsIdentity(fd: number): { inode: string; device: string; isNetns: boolean };
  closeFd(fd: number): void;
  readSysctl(netnsFd: number, path: string): string;
  writeSysctl(netnsFd: number, path: string, value: string): void;
  listenTcp(
    netnsFd: number,
    address: string,
    port: number,
    mark: number,
    reusePort: boolean,
    transparency: number,
    backlog: number,
    noDelay: boolean,
    keepIdleSeconds: number,
    keepIntervalSeconds: number,
    keepRetries: number,
    userTimeoutMs: number,
    local: boolean,
  ): { fd: number; port: number; transparent: boolean };
  openTcp(
    netnsFd: number,
    family: number,
    mark: number,
    spoofedSource: string | null,
    localSource: string | null,
    noDelay: boolean,
    keepIdleSeconds: number,
    keepIntervalSeconds: number,
    keepRetries: number,
    userTimeoutMs: number,
    local: boolean,
  ): number;
  connectTcp(fd: number, ip: string, port: number): number;
  acceptQueued(
    listenerFd: number,
    redirected: boolean,
    most: number,
    onAccepted: OnAccepted,
  ): number;
  holdFd(fd: number): void;
  releaseFd(fd: number): void;
  closeHeld(fd: number, reset: boolean): void;
  acceptedNames(fd: number, redirected: boolean): AcceptedNames | null;
  resetOnClose(fd: number): void;
  listenUdp(
    netnsFd: number,
    address: string,
    port: number,
    mark: number,
    reusePort: boolean,
    receiveBuffer: number,
  ): { fd: number; port: number };
  openUdp(netnsFd: number, family: number, mark: number): number;
  seqpacketListen(path: string, mode: number, backlog: number): number;
  seqpacketConnect(path: string): number;
  seqpacketAccept(fd: number): { fd: number; pid: number; uid: number } | null;
  seqpacketSend(fd: number, bytes: Uint8Array, passedFd: number): boolean;
  seqpacketReceive(
    fd: number,
    maxBytes: number,
  ): { data: Buffer; fds: number[]; truncated: boolean } | null;
  pollOpen(
    fd: number,
    onEvent: (readable: boolean, writable: boolean) => void,
    owned: boolean,
  ): PollHandle;
  pollWatch(handle: PollHandle, readable: boolean, writable: boolean): void;
  pollClose(handle: PollHandle): void;
  listeningPorts(netnsFd: number): number[];
  hasListeners(netnsFd: number, ports: readonly number[]): boolean;
  nftGeneration(netnsFd: number): number | null;
  policyRouting(netnsFd: number, family: number, table: number): PolicyRouting;
  rulesDigest(netnsFd: number, legacy: boolean): string;
  addresses(netnsFd: number): string[];
  releaseProgramPages(): Promise<number>;
  releaseFreeMemory(): Promise<number>;
  collectInSteps(): void;
  saveMemory(): void;
  raiseFileLimit(): { soft: number; hard: number };
  pumpOpen(
    onEnd: (
      id: number,
      fromA: number,
      fromB: number,
      errno: string | null,
      firstFromBAgoMs: number | null,
    ) => void,
  ): PumpHandle;
  pumpStart(
    handle: PumpHandle,
    a: number,
    b: number,
    firstToA: Buffer | null,
    firstToB: Buffer | null,
    readFromA: Buffer | null,
    readFromB: Buffer | null,
  ): number;
  pumpAbort(id: number): void;
  pumpCounts(id: number): { fromA: number; fromB: number; firstFromBAgoMs: number | null } | null;
  pumpStats(): PumpStats;
  pumpLimit(maxPipes: number, pipeBytes: number): void;
  carryOpen(
    threads: number,
    onEvents: (count: number, bytes: Buffer | null) => void,
    numbers: Float64Array,
  ): CarryHandle;
  carryLink(handle: CarryHandle, options: CarryLinkOptions): number;
  carryDrive(handle: CarryHandle): void;
  carryControl(handle: CarryHandle, link: number, frames: Buffer): void;
  carryStream(handle: CarryHandle, link: number, stream: number): void;
  carryAttach(
    handle: CarryHandle,
    link: number,
    stream: number,
    fd: number,
    first: Buffer | null,
    read: Buffer | null,
    tellEnd: boolean,
  ): void;
  carryOffer(
    handle: CarryHandle,
    link: number,
    stream: number,
    fd: number,
    first: null,
    read: null,
    tellEnd: false,
  ): void;
  carryJoin(handle: CarryHandle, link: number, stream: number): void;
  carryRecall(handle: CarryHandle, link: number, stream: number): boolean;
  carryEnd(handle: CarryHandle, link: number, stream: number): void;
  carryRemoteEnd(handle: CarryHandle, link: number, stream: number): void;
  carryExpect(handle: CarryHandle, link: number, stream: number, bytes: number): void;
  carryReset(handle: CarryHandle, link: number, stream: number, code: number): void;
  carryPeerSettings(
    handle: CarryHandle,
    link: number,
    initialWindow: number,
    maxFrameSize: number,
  ): void;
  carryWindows(handle: CarryHandle, link: number, stream: number, connection: number): void;
  carryPressure(handle: CarryHandle, link: number, pressed: boolean): void;
  carryFinish(handle: CarryHandle, link: number): void;
  carryDestroy(handle: CarryHandle, link: number): void;
  carryCounts(handle: CarryHandle, link: number, stream: number): CarryCounts | null;
  carryHeard(handle: CarryHandle, link: number): number | null;
  carryStats(): CarryStats;
  socketPair(): readonly [number, number];
  duplicateFd(fd: number): number;
  outputOpen(fd: number): OutputHandle;
  outputAppend(handle: OutputHandle, text: string): number;
  outputFlush(handle: OutputHandle): number;
  lockFile(path: string): number | null;
  capabilities(): { netAdmin: boolean; netRaw: boolean; sysAdmin: boolean };
}

const ADDON = installedPath('lib/linux/addon/build/weft.node');
let loaded: NativeModule | null = null;

/** Returns the addon of this thread. Throws CONFIG_UNSUPPORTED with the command to run when it is not built or does not load. */
export function native(): NativeModule {
  if (loaded !== null) return loaded;
  try {
    loaded = createRequire(import.meta.url)(ADDON) as NativeModule;
    return loaded;
  } catch (error) {
    throw new MeshError(
      'CONFIG_UNSUPPORTED',
      `the native addon lib/linux/addon/build/weft.node cannot be loaded: run infra/setup.sh (${errorText(error)})`,
      { cause: error },
    );
  }
}

/** Runs `work` with the addon. Turns a failed system call into NATIVE_SYSCALL with `{call, errno, path?}`. */
export function callNative<T>(work: (module: NativeModule) => T): T {
  const module = native();
  try {
    return work(module);
  } catch (error) {
    throw asSyscallError(error);
  }
}

/** Does the same for work that a pool thread does. */
export async function awaitNative<T>(work: (module: NativeModule) => Promise<T>): Promise<T> {
  try {
    return await callNative(work);
  } catch (error) {
    throw asSyscallError(error);
  }
}

function asSyscallError(error: unknown): unknown {
  if (!(error instanceof Error) || !('call' in error) || !('errno' in error)) return error;
  const path = 'path' in error ? { path: String(error.path) } : {};
  return new MeshError('NATIVE_SYSCALL', error.message, {
    cause: error,
    detail: { call: String(error.call), errno: String(error.errno), ...path },
  });
}
