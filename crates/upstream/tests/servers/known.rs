//! Which era a server speaks is found out once.

use crate::support::{World, spec};
use portcullis_store::offers::Offers;
use portcullis_testkit::misbehaving::Misbehaving;
use portcullis_testkit::wait::{until, within};
use portcullis_upstream::{PerClient, ServerSpec, Start};
use std::sync::Arc;

fn times(server: &Misbehaving, asks: &str) -> usize {
    server.seen().iter().filter(|seen| seen.asks() == asks).count()
}

#[tokio::test]
async fn a_client_with_a_server_of_its_own_does_not_find_out_again() {
    let server = Misbehaving::open(|seen| seen.usual()).await.unwrap();
    let spec = ServerSpec { per_client: Some(PerClient { clients_max: 4 }), ..spec(&server.url()) };
    let world = World::connected(spec).await;
    assert_eq!(within("the call", world.call("up_echo")).await, "echoed");
    assert_eq!((times(&server, "initialize"), times(&server, "server/discover")), (2, 1));
}

#[tokio::test]
async fn a_server_that_waits_to_be_needed_is_known_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let offers = Arc::new(Offers::open(folder.path()));
    let server = Misbehaving::open(|seen| seen.usual()).await.unwrap();
    let lazy = || ServerSpec { start: Start::AtNeed(offers.clone()), ..spec(&server.url()) };
    let first = World::connected(lazy()).await;
    until("what it offers is kept", async || offers.of("up").unwrap()).await;
    first.upstream.stop();
    let again = World::connected(lazy()).await;
    assert!(again.upstream.status().idle);
    assert_eq!(within("the call", again.call("up_echo")).await, "echoed");
    assert_eq!((times(&server, "initialize"), times(&server, "server/discover")), (2, 1));
}
