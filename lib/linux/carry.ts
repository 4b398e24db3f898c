/** Links that native threads carry (addon/carry): they move the bytes of tunnels; all decisions stay here. */
import { performance } from 'node:perf_hooks';
import { getSystemErrorName } from 'node:util';
import { callNative } from './native.ts';
import type { CarryHandle, CarryLinkOptions, CarryStats, NativeModule } from './native.ts';

export type { CarryLinkOptions, CarryStats } from './native.ts';

/** Why a carried stream has ended, as addon/carry/events.h numbers it. */
export const STREAM_CAUSE = {
  done: 0,
  peerReset: 1,
  socket: 2,
  unread: 3,
  cut: 4,
  broke: 5,
  link: 6,
} as const;

/** Why a link has ended. */
export const LINK_CAUSE = {
  closed: 0,
  truncated: 1,
  socket: 2,
  alert: 3,
  tlsFault: 4,
  destroyed: 5,
  internal: 6,
} as const;

/** Bytes moved for one stream. */
export interface StreamCounts {
  readonly fromSocket: number;
  readonly fromStream: number;
  /** Times of the first byte, by performance.now(); undefined before. */
  readonly firstFromSocketMs: number | undefined;
  readonly firstFromStreamMs: number | undefined;
}

/** The end of a stream. */
export interface StreamEnded {
  /** One of {@link STREAM_CAUSE}. */
  readonly cause: number;
  /** The code of the RST_STREAM of the peer, or of ours. */
  readonly code: number;
  /** The failure of the socket. */
  readonly errno: string | null;
  readonly counts: StreamCounts;
  /** Whether the peer's END_STREAM had come. */
  readonly peerEnded: boolean;
}

/** Receives what happens on a link, in order. After `gone` come only `held` and the ends of streams that are over. */
export interface LinkReceiver {
  /** Whether no further call is due. */
  readonly isDone: boolean;
  /** Whole frames have come: all types but DATA, WINDOW_UPDATE and unknown ones. */
  frames(frames: Buffer): void;
  ended(stream: number, end: StreamEnded): void;
  /** END_STREAM has come for a stream without a socket. */
  remoteEnd(stream: number): void;
  /** Our END_STREAM is on its way, on a stream that was attached with `tellEnd`. */
  endSent(stream: number): void;
  /**
   * No further frame concerns a stream, but bytes for its socket are left, perhaps one that is not joined yet. `code` is that of the
   * peer's RST_STREAM, null without one. The stream ends later, also after the link has.
   */
  over(stream: number, code: number | null): void;
  /** The peer has broken the protocol; nothing more is read. */
  fault(code: number, text: string): void;
  /** Bytes held now: to be sent, and received without being taken by sockets. */
  held(queued: number, received: number): void;
  /** The link has ended, by one of {@link LINK_CAUSE}; `detail` is the number of an alert. */
  gone(cause: number, detail: number, errno: string | null): void;
}

/** Places of an event's numbers, as addon/carry-mailbox.cc writes them. */
const EVENT = {
  kind: 0,
  link: 1,
  stream: 2,
  cause: 3,
  code: 4,
  error: 5,
  flags: 6,
  bytes: 7,
  /** The next four belong to `ended`, with -1 for the time of a byte that has not come; `held` has its queued bytes in the first. */
  fromSocket: 8,
  fromStream: 9,
  socketAgoMs: 10,
  streamAgoMs: 11,
} as const;
const EVENT_NUMBERS = 12;
/** More are told by several calls. */
const EVENTS_AT_ONCE = 64;
const PEER_ENDED = 1;

const NO_BYTES = Buffer.alloc(0);

/** The addon writes events here: to make an array of each would cost more than all else about it. */
const numbers = new Float64Array(EVENT_NUMBERS * EVENTS_AT_ONCE);

/** Links of this thread. */
const links = new Map<number, LinkReceiver>();
let handle: CarryHandle | null = null;
/** Whether the queued commands will be obeyed at the end of this turn. */
let drives = false;

/**
 * A link that a native thread carries. A call on a link that has ended does nothing, and closes the descriptor given with it. Calls are
 * obeyed in their order.
 */
export class CarriedLink {
  readonly #handle: CarryHandle;
  readonly #id: number;
  #heard = 0;

  /**
   * Takes the descriptor unless it throws NATIVE_SYSCALL. The process has at most `threads` threads that carry; the links of a
   * JavaScript thread share one.
   */
  constructor(options: CarryLinkOptions, receiver: LinkReceiver, threads: number) {
    this.#handle = handle ??= callNative((native) => native.carryOpen(threads, dispatch, numbers));
    this.#id = callNative((native) => native.carryLink(this.#handle, options));
    links.set(this.#id, receiver);
  }

  /** Bytes of the peer so far; the last known number after the end. */
  get heard(): number {
    this.#heard = callNative((native) => native.carryHeard(this.#handle, this.#id)) ?? this.#heard;
    return this.#heard;
  }

  /** Sends whole frames; the native side judges how many may wait. */
  control(frames: Buffer): void {
    this.#command((native) => native.carryControl(this.#handle, this.#id, frames));
  }

  /** A client opens a stream, whose HEADERS follow. A server's streams open by the HEADERS of the peer. */
  open(stream: number): void {
    this.#command((native) => native.carryStream(this.#handle, this.#id, stream));
  }

  /**
   * Joins a stream with a connected socket, as lib/net/raw-socket.ts gives it away; `tellEnd` asks for `endSent`. Takes the descriptor unless
   * it throws NATIVE_SYSCALL.
   */
  attach(
    stream: number,
    { fd, first, read }: { fd: number; first: Buffer | null; read: Buffer | null },
    tellEnd: boolean,
  ): void {
    this.#command((native) =>
      native.carryAttach(this.#handle, this.#id, stream, fd, first, read, tellEnd),
    );
  }

  /**
   * Has the thread join a stream of a client with a connected socket as soon as the peer plainly answers 200, without asking. Takes the descriptor
   * unless it throws NATIVE_SYSCALL.
   */
  offer(stream: number, fd: number): void {
    this.#command((native) =>
      native.carryOffer(this.#handle, this.#id, stream, fd, null, null, false),
    );
  }

  /** Joins a stream with the socket that was offered to it, unless that is done. */
  join(stream: number): void {
    this.#command((native) => native.carryJoin(this.#handle, this.#id, stream));
  }

  /** Takes the socket that was offered to a stream back: it is the caller's again. False if the stream was joined with it. */
  recall(stream: number): boolean {
    return callNative((native) => native.carryRecall(this.#handle, this.#id, stream));
  }

  /** END_STREAM went out with HEADERS. */
  end(stream: number): void {
    this.#command((native) => native.carryEnd(this.#handle, this.#id, stream));
  }

  /** END_STREAM came with HEADERS, which are in order. */
  remoteEnd(stream: number): void {
    this.#command((native) => native.carryRemoteEnd(this.#handle, this.#id, stream));
  }

  /** The peer must send exactly so many bytes of content. */
  expect(stream: number, bytes: number): void {
    this.#command((native) => native.carryExpect(this.#handle, this.#id, stream, bytes));
  }

  /** Sends RST_STREAM, drops what waits, and resets the socket. */
  reset(stream: number, code: number): void {
    this.#command((native) => native.carryReset(this.#handle, this.#id, stream, code));
  }

  /** Settings of the peer; their acknowledgement follows. */
  peerSettings(initialWindow: number, maxFrameSize: number): void {
    this.#command((native) =>
      native.carryPeerSettings(this.#handle, this.#id, initialWindow, maxFrameSize),
    );
  }

  /** The receive windows that the peer has been told. */
  windows(stream: number, connection: number): void {
    this.#command((native) => native.carryWindows(this.#handle, this.#id, stream, connection));
  }

  pressure(pressed: boolean): void {
    this.#command((native) => native.carryPressure(this.#handle, this.#id, pressed));
  }

  /** Sends what waits and close_notify, and ends once the peer does. Streams that are left end now. */
  finish(): void {
    this.#command((native) => native.carryFinish(this.#handle, this.#id));
  }

  destroy(): void {
    this.#command((native) => native.carryDestroy(this.#handle, this.#id));
  }

  /** The counts of a stream; null when it has no socket, or its socket did not end cleanly. */
  counts(stream: number): StreamCounts | null {
    const counts = callNative((native) => native.carryCounts(this.#handle, this.#id, stream));
    return counts === null ? null : streamCounts(...counts);
  }

  /** Queues a command; all commands of this turn are obeyed together. */
  #command(queue: (native: NativeModule) => void): void {
    callNative(queue);
    if (drives) return;
    drives = true;
    queueMicrotask(drive);
  }
}

function drive(): void {
  drives = false;
  const driven = handle;
  if (driven !== null) callNative((native) => native.carryDrive(driven));
}

/** Returns the counters of the process. */
export function carryStats(): CarryStats {
  return callNative((native) => native.carryStats());
}

/** Makes two connected ends of a local stream; the caller owns both. Throws NATIVE_SYSCALL. */
export function socketPair(): readonly [number, number] {
  return callNative((native) => native.socketPair());
}

function dispatch(count: number, bytes: Buffer | null): void {
  let from = 0;
  for (let index = 0; index < count; index += 1) {
    const at = index * EVENT_NUMBERS;
    const to = from + number(at + EVENT.bytes);
    const link = number(at + EVENT.link);
    const receiver = links.get(link);
    if (receiver !== undefined) {
      deliver(receiver, at, bytes === null || from === to ? NO_BYTES : bytes.subarray(from, to));
      if (receiver.isDone) links.delete(link);
    }
    from = to;
  }
}

/** Delivers the event whose numbers begin at a place. */
function deliver(receiver: LinkReceiver, at: number, bytes: Buffer): void {
  const code = number(at + EVENT.code);
  const stream = number(at + EVENT.stream);
  switch (number(at + EVENT.kind)) {
    case 0:
      receiver.frames(bytes);
      break;
    case 1:
      receiver.ended(stream, {
        cause: number(at + EVENT.cause),
        code,
        errno: errnoAt(at),
        counts: streamCounts(
          number(at + EVENT.fromSocket),
          number(at + EVENT.fromStream),
          momentAgo(at + EVENT.socketAgoMs),
          momentAgo(at + EVENT.streamAgoMs),
        ),
        peerEnded: (number(at + EVENT.flags) & PEER_ENDED) !== 0,
      });
      break;
    case 2:
      receiver.fault(code, bytes.toString());
      break;
    case 3:
      receiver.gone(number(at + EVENT.cause), code, errnoAt(at));
      break;
    case 4:
      receiver.held(number(at + EVENT.fromSocket), code);
      break;
    case 5:
      receiver.over(stream, code === -1 ? null : code);
      break;
    case 6:
      receiver.remoteEnd(stream);
      break;
    case 7:
      receiver.endSent(stream);
      break;
  }
}

function number(place: number): number {
  return numbers[place] ?? 0;
}

function errnoAt(at: number): string | null {
  const error = number(at + EVENT.error);
  return error === 0 ? null : getSystemErrorName(-error);
}

function momentAgo(place: number): number | null {
  const agoMs = number(place);
  return agoMs < 0 ? null : agoMs;
}

function streamCounts(
  fromSocket: number,
  fromStream: number,
  socketAgo: number | null,
  streamAgo: number | null,
): StreamCounts {
  const now = performance.now();
  return {
    fromSocket,
    fromStream,
    firstFromSocketMs: socketAgo === null ? undefined : now - socketAgo,
    firstFromStreamMs: streamAgo === null ? undefined : now - streamAgo,
  };
}
