/**
 * `outside`: not to be enrolled. `waiting`: its namespace or rules are not ready. `pending`: rules stand, no proxy
 * confirmed. `enabled`: served. `leaving`: its carried connections may end.
 */
export type PodState = 'outside' | 'waiting' | 'pending' | 'enabled' | 'leaving';
