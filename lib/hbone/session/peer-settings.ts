import {
  ConnectionFault,
  DEFAULT_FRAME_SIZE,
  DEFAULT_WINDOW,
  LARGEST_FRAME_SIZE,
  MAX_WINDOW,
  errorCode,
  settingId,
} from './frames.ts';

const SETTING_BYTES = 6;

/** The settings of the peer (RFC 9113 §6.5.2). */
export class PeerSettings {
  initialWindow = DEFAULT_WINDOW;
  maxFrameSize = DEFAULT_FRAME_SIZE;
  /** Streams that it lets the local end open; null until it states a number. */
  maxConcurrentStreams: number | null = null;
  readonly #fromServer: boolean;

  constructor(fromServer: boolean) {
    this.#fromServer = fromServer;
  }

  /** Takes the payload of a SETTINGS frame, in order. Throws {@link ConnectionFault}. */
  apply(payload: Buffer): void {
    for (let at = 0; at < payload.length; at += SETTING_BYTES) {
      this.#set(payload.readUInt16BE(at), payload.readUInt32BE(at + 2));
    }
  }

  #set(id: number, value: number): void {
    switch (id) {
      case settingId.enablePush:
        if (value > 1 || (value === 1 && this.#fromServer)) throw invalid('ENABLE_PUSH', value);
        break;
      case settingId.maxConcurrentStreams:
        this.maxConcurrentStreams = value;
        break;
      case settingId.initialWindowSize:
        if (value > MAX_WINDOW) {
          throw invalid('INITIAL_WINDOW_SIZE', value, errorCode.flowControlError);
        }
        this.initialWindow = value;
        break;
      case settingId.maxFrameSize:
        if (value < DEFAULT_FRAME_SIZE || value > LARGEST_FRAME_SIZE) {
          throw invalid('MAX_FRAME_SIZE', value);
        }
        this.maxFrameSize = value;
        break;
      default:
        // The table size does not matter: the encoder has no table. Nor does the list size: lists have a few hundred bytes. Others are unknown.
        break;
    }
  }
}

function invalid(name: string, value: number, code: number = errorCode.protocolError): Error {
  return new ConnectionFault(code, `the peer set ${name} to ${value}`);
}
