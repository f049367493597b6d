/**
 * Until when a lease can be counted on. Moments are arguments.
 *
 *   asked              granted, by the server's clock                    its lease ends
 *     ├────────────────────┼────────────────────── ttl ─────────────────────┤
 *     ├────────────────────── ttl ──────────────────────┤
 *                                            valid until ┤ drift ┤
 *
 * The lease began at the earliest when it was asked for. Two clocks measure it, and the drift is what they may differ by
 * meanwhile.
 */
import type { Moment } from './clock.js';

const DRIFT_PART = 100;
const DRIFT_LEAST = 2;

export function drift(ttl: number): number {
  return ttl / DRIFT_PART + DRIFT_LEAST;
}

export function validUntil(asked: Moment, ttl: number): Moment {
  return asked + Math.max(0, ttl - drift(ttl));
}

export function renewAt(asked: Moment, ttl: number): Moment {
  return asked + ttl / 3;
}

/** How long to wait for each answer: less where the lease is short. */
export function patienceForAnswer(response: number, ttl: number): number {
  return Math.min(response, Math.max(ttl / 5, Math.min(ttl / 2, 100)));
}
