/** Builds lines field by field, with the same text that pino and lib/log/plain-format.ts make. Pure. */
import { MAX_LABELS, MAX_LABEL_CHARACTERS } from './limits.ts';
import { HEAD, microseconds, valueText } from './plain-format.ts';

/** Takes the fields of a line, in order. Names come from code and need no escapes. */
export interface FieldSink {
  text(name: string, value: string): void;
  /** A text that many lines share, such as the name of a workload. */
  label(name: string, value: string): void;
  /** A finite number. */
  number(name: string, value: number): void;
}

/** A line that is being built. */
export interface LineText extends FieldSink {
  /** Returns the whole line with its newline; no field may be added afterwards. */
  end(): string;
}

/** The parts that all lines of a kind share. */
export interface LineParts {
  readonly level: string;
  /** Names the writer. */
  readonly base: Readonly<Record<string, string | number>>;
  readonly target: string;
  readonly message: string;
}

/** Begins a line; `time` is ISO 8601 with milliseconds. */
export type LineMaker = (time: string) => LineText;

/** Characters that JSON may have to escape. */
// oxlint-disable-next-line no-control-regex -- these are the characters in question
const NEEDS_QUOTING = /["\\\u0000-\u001f\ud800-\udfff]/;

/** Makes lines of JSON. */
export function jsonLines({ level, base, target, message }: LineParts): LineMaker {
  const head = `{"level":${quoted(level)},"time":"`;
  const who = JSON.stringify({ ...base, scope: target }).slice(1, -1);
  const tail = `,"message":${quoted(message)}}\n`;
  const labels = new Labels((name, value) => `,"${name}":${quoted(value)}`);
  return (time) => new JsonLine(`${head}${time}",${who}`, tail, labels);
}

/** Makes lines of upstream's plain text. */
export function plainLines({ level, base, target, message }: LineParts): LineMaker {
  const head = `\t${level}\t${target}\t${message}\t`;
  const who = Object.entries(base)
    .filter(([name]) => !HEAD.has(name))
    .map(([name, value]) => `${name}=${valueText(name, value)}`)
    .join(' ');
  const labels = new Labels((name, value) => `${name}=${valueText(name, value)}`);
  return (time) =>
    new PlainLine(`${microseconds(time)}${head}${who}`, who === '' ? '' : ' ', labels);
}

/** The text of fields whose values return. A look at all their characters, for those to escape, costs more than the rest of a line. */
class Labels {
  readonly #known = new Map<string, Map<string, string>>();
  readonly #make: (name: string, value: string) => string;

  constructor(make: (name: string, value: string) => string) {
    this.#make = make;
  }

  text(name: string, value: string): string {
    if (value.length > MAX_LABEL_CHARACTERS) return this.#make(name, value);
    let values = this.#known.get(name);
    if (values === undefined) {
      values = new Map();
      this.#known.set(name, values);
    }
    let text = values.get(value);
    if (text === undefined) {
      if (values.size === MAX_LABELS) values.clear();
      text = this.#make(name, value);
      values.set(value, text);
    }
    return text;
  }
}

class JsonLine implements LineText {
  #text: string;
  readonly #tail: string;
  readonly #labels: Labels;

  constructor(head: string, tail: string, labels: Labels) {
    this.#text = head;
    this.#tail = tail;
    this.#labels = labels;
  }

  text(name: string, value: string): void {
    this.#text += `,"${name}":${quoted(value)}`;
  }

  label(name: string, value: string): void {
    this.#text += this.#labels.text(name, value);
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
  readonly #labels: Labels;

  constructor(head: string, gap: string, labels: Labels) {
    this.#text = head;
    this.#gap = gap;
    this.#labels = labels;
  }

  text(name: string, value: string): void {
    this.#text += `${this.#gap}${name}=${valueText(name, value)}`;
    this.#gap = ' ';
  }

  label(name: string, value: string): void {
    this.#text += this.#gap + this.#labels.text(name, value);
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

const MS_PER_SECOND = 1_000;

let second = NaN;
let prefix = '';

/** Returns the time as in `2026-11-21T09:30:00.123Z`. Caches all but the milliseconds for a second. */
export function isoTime(nowMs: number = Date.now()): string {
  const whole = Math.floor(nowMs / MS_PER_SECOND);
  if (whole !== second) {
    second = whole;
    prefix = new Date(whole * MS_PER_SECOND).toISOString().slice(0, -4);
  }
  const ms = nowMs - whole * MS_PER_SECOND;
  return `${prefix}${ms < 10 ? '00' : ms < 100 ? '0' : ''}${ms}Z`;
}
