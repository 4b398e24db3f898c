/** The changes that a mesh of containers makes in its Docker engine. */
import {
  CREATE_TIMEOUT_MS,
  EngineView,
  NOT_FOUND,
  NOT_MODIFIED,
} from '../../lib/docker/engine-view.ts';

/** Another caller is removing the container. */
const CONFLICT = 409;

/** Changes the containers of one engine. */
export class Engine extends EngineView {
  /** An image's defaults for its containers; empty when the image is gone. */
  async imageConfig(image: string): Promise<Readonly<Record<string, unknown>>> {
    const seen = await this.unless([NOT_FOUND], this.docker.getImage(image).inspect());
    return { ...seen?.Config };
  }

  /** Makes a container; its id. */
  async create(name: string, body: Readonly<Record<string, unknown>>): Promise<string> {
    const abortSignal = AbortSignal.timeout(CREATE_TIMEOUT_MS);
    // Without these two, the client would send the body as the query as well.
    const question = { _query: { name }, _body: body, abortSignal };
    return (await this.said(this.patient.createContainer(question))).id;
  }

  /** Stops a container and waits without a time limit. The engine does not restart it. */
  async stop(id: string): Promise<void> {
    await this.unless([NOT_MODIFIED], this.patient.getContainer(id).stop({ t: -1 }));
  }

  /** Prevents the engine from restarting a container that ends. */
  async leaveEnded(id: string): Promise<void> {
    await this.said(this.docker.getContainer(id).update({ RestartPolicy: { Name: 'no' } }));
  }

  /** Gives it another name. */
  async rename(id: string, name: string): Promise<void> {
    await this.said(this.docker.getContainer(id).rename({ name }));
  }

  /** Removes a container, running or not. Succeeds when it is gone. */
  async remove(id: string): Promise<void> {
    const removed = this.docker.getContainer(id).remove({ force: true });
    await this.unless([NOT_FOUND, CONFLICT], removed);
  }
}
