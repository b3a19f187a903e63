//! What a lock will cost on more CPUs, and what removing or splitting it would gain.
//!
//! Threads that compute and take locks are a closed queueing network: computing is a delay that each thread has for itself,
//! a lock is a server that all queue for. Its [`network`] is fed by what a recording with holds measured ([`measured`]),
//! solved exactly ([`convolution`], which tests check against mean-value analysis where a lock serves at a constant rate, and
//! [`processors`], by a chain over it that knows CPUs), and checked by a discrete-event simulation of the same locks
//! ([`simulation`]) that makes none of the assumptions of the exact solution: measured hold times instead of exponential ones,
//! readers that hold together.
//!
//! Sources: M. Reiser and S. Lavenberg, "Mean-value analysis of closed multichain queuing networks", JACM 1980; J. Buzen,
//! "Computational algorithms for closed queueing networks with exponential servers", CACM 1973.

pub mod callers;
pub mod convolution;
pub mod forecast;
mod halving;
pub mod measured;
#[cfg(test)]
mod mva;
pub mod network;
pub mod processors;
pub mod simulation;
