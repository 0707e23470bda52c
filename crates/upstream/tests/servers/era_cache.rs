//! The era of a server is probed once.

use crate::support::{UpstreamFixture, spec};
use portcullis_store::catalogs::CatalogStore;
use portcullis_testkit::misbehaving_server::MisbehavingServer;
use portcullis_testkit::wait::{until, within};
use portcullis_upstream::{PerClient, ServerSpec, StartPolicy};
use std::sync::Arc;

fn times(server: &MisbehavingServer, asks: &str) -> usize {
    server.seen().iter().filter(|seen| seen.asks() == asks).count()
}

#[tokio::test]
async fn a_client_with_a_server_of_its_own_does_not_find_out_again() {
    let server = MisbehavingServer::open(|seen| seen.usual()).await.unwrap();
    let spec = ServerSpec { per_client: Some(PerClient { clients_max: 4 }), ..spec(&server.url()) };
    let world = UpstreamFixture::connected(spec).await;
    assert_eq!(within("the call", world.call("up_echo")).await, "echoed");
    assert_eq!((times(&server, "initialize"), times(&server, "server/discover")), (2, 1));
}

#[tokio::test]
async fn a_server_that_waits_to_be_needed_is_known_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let offers = Arc::new(CatalogStore::open(folder.path()));
    let server = MisbehavingServer::open(|seen| seen.usual()).await.unwrap();
    let lazy = || ServerSpec { start: StartPolicy::AtNeed(offers.clone()), ..spec(&server.url()) };
    let first = UpstreamFixture::connected(lazy()).await;
    until("what it offers is kept", async || offers.of("up").unwrap()).await;
    first.upstream.stop();
    let again = UpstreamFixture::connected(lazy()).await;
    assert!(again.upstream.status().idle);
    assert_eq!(within("the call", again.call("up_echo")).await, "echoed");
    assert_eq!((times(&server, "initialize"), times(&server, "server/discover")), (2, 1));
}
