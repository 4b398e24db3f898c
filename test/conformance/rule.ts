/** One rule of a specification that some test has to hold Weft to. */
export interface Rule {
  /** Section and, where it has one, number: `2.1.4` is number 4 of section 2.1. */
  readonly section: string;
  /** The demand, in a few words. */
  readonly demands: string;
  /** Where Weft does something else on purpose: a file of docs/decisions. */
  readonly deviates?: string;
  /** Why no test can or should hold Weft to it. */
  readonly outside?: string;
}

/** The rules of one specification file. */
export interface Specification {
  /** Name as tests write it: `spec: <file> §<section>`. */
  readonly file: string;
  readonly title: string;
  readonly rules: readonly Rule[];
}

/** Shorter to write in a list. */
export function rule(
  section: string,
  demands: string,
  but: Pick<Rule, 'deviates' | 'outside'> = {},
): Rule {
  return { section, demands, ...but };
}
