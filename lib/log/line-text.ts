/** Lines put together field by field; the same text that pino and lib/log/plain-format.ts make of the same fields. Pure. */
import { HEAD, microseconds, valueText } from './plain-format.ts';

/** Takes the fields of a line, in order. Names are those of code and need no quotes of their own. */
export interface FieldSink {
  text(name: string, value: string): void;
  /** A finite number. */
  number(name: string, value: number): void;
}

/** A line that is being put together. */
export interface LineText extends FieldSink {
  /** The whole line and its newline; nothing may be added to it any more. */
  end(): string;
}

/** What all lines of a kind have. */
export interface LineParts {
  readonly level: string;
  /** Who writes. */
  readonly base: Readonly<Record<string, string | number>>;
  readonly target: string;
  readonly message: string;
}

/** Begins lines of a kind; `time` as lib/log/iso-time.ts tells it. */
export type LineMaker = (time: string) => LineText;

/** What JSON does not take between quotes as it is, and what may be such. */
// oxlint-disable-next-line no-control-regex -- these are the characters in question
const NEEDS_QUOTING = /["\\\u0000-\u001f\ud800-\udfff]/;

/** Lines as JSON. */
export function jsonLines({ level, base, target, message }: LineParts): LineMaker {
  const head = `{"level":${quoted(level)},"time":"`;
  const who = JSON.stringify({ ...base, scope: target }).slice(1, -1);
  const tail = `,"message":${quoted(message)}}\n`;
  return (time) => new JsonLine(`${head}${time}",${who}`, tail);
}

/** Lines as upstream's plain text. */
export function plainLines({ level, base, target, message }: LineParts): LineMaker {
  const head = `\t${level}\t${target}\t${message}\t`;
  const who = Object.entries(base)
    .filter(([name]) => !HEAD.has(name))
    .map(([name, value]) => `${name}=${valueText(name, value)}`)
    .join(' ');
  return (time) => new PlainLine(`${microseconds(time)}${head}${who}`, who === '' ? '' : ' ');
}

class JsonLine implements LineText {
  #text: string;
  readonly #tail: string;

  constructor(head: string, tail: string) {
    this.#text = head;
    this.#tail = tail;
  }

  text(name: string, value: string): void {
    this.#text += `,"${name}":${quoted(value)}`;
  }

  number(name: string, value: number): void {
    this.#text += `,"${name}":${value}`;
  }

  end(): string {
    return this.#text + this.#tail;
  }
}

class PlainLine implements LineText {
  #text: string;
  #gap: string;

  constructor(head: string, gap: string) {
    this.#text = head;
    this.#gap = gap;
  }

  text(name: string, value: string): void {
    this.#text += `${this.#gap}${name}=${valueText(name, value)}`;
    this.#gap = ' ';
  }

  number(name: string, value: number): void {
    this.#text += `${this.#gap}${name}=${value}`;
    this.#gap = ' ';
  }

  end(): string {
    return `${this.#text}\n`;
  }
}

function quoted(value: string): string {
  return NEEDS_QUOTING.test(value) ? JSON.stringify(value) : `"${value}"`;
}
