/** Returns the text of a kubeconfig file whose only context, `test`, has this server and token. */
export function kubeconfigText(access: {
  readonly server: string;
  readonly caPem: string;
  readonly token: string;
  /** The current context; `test` when left out. */
  readonly current?: string;
}): string {
  const cluster = {
    server: access.server,
    'certificate-authority-data': Buffer.from(access.caPem).toString('base64'),
  };
  return JSON.stringify({
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': access.current ?? 'test',
    clusters: [{ name: 'test', cluster }],
    contexts: [{ name: 'test', context: { cluster: 'test', user: 'test' } }],
    users: [{ name: 'test', user: { token: access.token } }],
  });
}
