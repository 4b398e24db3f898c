/** The lines of `weft check`. Pure. */

/** `unknown`: it cannot be judged, most often because the user lacks a right. */
export type CheckStatus = 'ok' | 'warning' | 'failed' | 'unknown';

/** One thing that was judged. */
export interface CheckLine {
  /** The subject: `kubernetes`, `permissions`, … */
  readonly about: string;
  readonly status: CheckStatus;
  readonly says: string;
  /** The advice; null when nothing is to do. */
  readonly todo: string | null;
}

/** A part of the cluster, or the reason why it could not be read. */
export type Read<T> = { readonly value: T } | { readonly unread: string };

/** A line about something that is right. */
export function ok(about: string, says: string): CheckLine {
  return { about, status: 'ok', says, todo: null };
}

/** A line about something that is wrong. */
export function failed(about: string, says: string, todo: string): CheckLine {
  return { about, status: 'failed', says, todo };
}

/** A line about something that may be wrong. */
export function warning(about: string, says: string, todo: string): CheckLine {
  return { about, status: 'warning', says, todo };
}

/** The lines of a part that was read; else one that says why it was not. */
export function judged<T>(
  about: string,
  read: Read<T>,
  judge: (value: T) => readonly CheckLine[],
): readonly CheckLine[] {
  if ('value' in read) return judge(read.value);
  const todo = 'have this read by somebody who has the right, or get the right';
  return [{ about, status: 'unknown', says: read.unread, todo }];
}

const MARKS: Readonly<Record<CheckStatus, string>> = {
  ok: '√',
  warning: '‼',
  failed: '×',
  unknown: '?',
};

/** The lines for people, under a heading for each subject. */
export function checkLines(lines: readonly CheckLine[]): readonly string[] {
  const subjects = [...new Set(lines.map(({ about }) => about))];
  const parts = subjects.flatMap((subject) => [
    subject,
    ...lines
      .filter(({ about }) => about === subject)
      .flatMap(({ status, says, todo }) => [
        `  ${MARKS[status]} ${says}`,
        ...(todo === null ? [] : [`      ${todo}`]),
      ]),
    '',
  ]);
  return [...parts, summary(lines)];
}

function summary(lines: readonly CheckLine[]): string {
  const count = (wanted: CheckStatus): number =>
    lines.filter(({ status }) => status === wanted).length;
  const texts = (
    [
      ['failed', 'failed'],
      ['unknown', 'could not be judged'],
      ['warning', 'to look at'],
    ] as const
  ).flatMap(([status, word]) => (count(status) === 0 ? [] : [`${count(status)} ${word}`]));
  return texts.length === 0 ? `all ${lines.length} checks passed` : texts.join(', ');
}
