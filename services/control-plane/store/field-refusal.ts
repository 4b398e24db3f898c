/** Refuses a field of the object at hand; the caller knows which document it is. */
export class FieldRefusal extends Error {
  readonly path: string;

  constructor(path: string, reason: string) {
    super(reason);
    this.path = path;
  }
}
