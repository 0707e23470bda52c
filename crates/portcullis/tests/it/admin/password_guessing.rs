//! Brute force of passwords.

use super::{Admin, PASSWORD, sign_in};
use crate::support::home;
use portcullis_testkit::raw_http::RawHttpConnection;
use std::net::IpAddr;

#[tokio::test]
async fn a_guesser_is_locked_out_and_who_is_signed_in_is_not() {
    let home = home();
    let hub = home.serve().await;
    let ann = Admin::first(&hub).await;
    let mut looked_at = 0;
    let mut refused = None;
    for guess in 0..60 {
        let reply = sign_in("ann", &format!("guess number {guess}")).send(hub.address).await;
        match reply.status() {
            401 => looked_at += 1,
            429 => refused = Some(reply),
            other => panic!("{other}: {}", reply.text()),
        }
    }
    eprintln!("figure: wrong passwords looked at, of 60: {looked_at}");
    assert!((5..=10).contains(&looked_at), "{looked_at}");
    let refused = refused.expect("a refusal").json();
    assert!(refused["message"].as_str().unwrap().contains("retry in"), "{refused}");
    // Not even the right one is looked at from this machine, whichever of its addresses is taken; who is signed in goes on.
    assert_eq!(sign_in("ann", PASSWORD).send(hub.address).await.status(), 429);
    assert_eq!(ann.get("/overview").await.status(), 200);
    let elsewhere: IpAddr = "127.0.0.2".parse().unwrap();
    let reply =
        RawHttpConnection::open_from(elsewhere, hub.address).await.exchange(&sign_in("ann", PASSWORD)).await;
    assert_eq!(reply.status(), 429, "{}", reply.text());
}
