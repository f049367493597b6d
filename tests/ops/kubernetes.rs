//! The manifests for Kubernetes: what they say fits the rest, and the scripts and probes in them do what they say, run as
//! they stand, without a cluster.

mod group;
mod manifests;
mod secret;
mod single;
mod surviving;
