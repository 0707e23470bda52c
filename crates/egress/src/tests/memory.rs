//! Memory cost of an endless response, compressed and plain.

use super::again;
use super::client;
use flate2::Compression;
use flate2::write::{GzEncoder, MultiGzDecoder};
use std::io::Write;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const MB: usize = 1024 * 1024;
/// Memory that one hostile response may cost.
const GROWTH_KB_MAX: u64 = 16 * 1024;
const VARIABLE: &str = "PORTCULLIS_TEST_OWN_PROCESS";

/// Returns 10 MB of zeros as 10 kB of gzip. Concatenated gzip files are one file.
fn packed() -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let nothing = vec![0; 64 * 1024];
    for _ in 0..160 {
        encoder.write_all(&nothing).unwrap();
    }
    encoder.finish().unwrap()
}

/// Sends 10 GB when decompressed, or as much as the client reads, on each connection.
async fn site(encoding: &'static str, piece: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut visitor, _)) = listener.accept().await {
            let head =
                format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-encoding: {encoding}\r\n\r\n");
            let mut sent = visitor.write_all(head.as_bytes()).await;
            for _ in 0..1_000_000 {
                if sent.is_err() {
                    break;
                }
                sent = visitor.write_all(&piece).await;
            }
        }
    });
    address
}

fn status_kb(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

/// Returns the growth of this process's peak memory during `doing`.
async fn growth_kb(doing: impl Future<Output = ()>) -> u64 {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status_kb("VmRSS");
    doing.await;
    status_kb("VmHWM").saturating_sub(before)
}

/// Control: decompresses without a bound, as far as this test can afford.
async fn weak(address: SocketAddr) {
    let mut unpack = MultiGzDecoder::new(Vec::new());
    #[expect(clippy::disallowed_methods, reason = "the weak variant of a test, to itself")]
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut piece = vec![0; 64 * 1024];
    let mut in_head = true;
    while unpack.get_ref().len() < 64 * MB {
        let count = stream.read(&mut piece).await.unwrap();
        let body = match (in_head, piece[..count].windows(4).position(|four| four == b"\r\n\r\n")) {
            (true, Some(end)) => &piece[end + 4..count],
            (true, None) => continue,
            (false, _) => &piece[..count],
        };
        in_head = false;
        unpack.write_all(body).unwrap();
    }
}

#[test]
fn an_answer_without_end_costs_little() {
    if std::env::var_os(VARIABLE).is_none() {
        // Other tests in the same process would distort the measurement.
        let name = "tests::memory::an_answer_without_end_costs_little";
        assert_eq!(again(name, &["env"], VARIABLE), Some(true));
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let bomb = site("gzip", packed()).await;
        let plain = site("identity", vec![b'x'; 64 * 1024]).await;
        let client = client(&[bomb.to_string(), plain.to_string()]);
        let ask = async |address: SocketAddr, expected: &str| {
            let error = client.get(&format!("http://{address}/")).send().await.unwrap_err();
            assert_eq!(error.to_string(), expected);
        };
        // Warm up: one-time allocations are not growth.
        ask(plain, "the response has more than 5242880 bytes").await;
        let bombed = growth_kb(ask(bomb, "the response decompresses to more than 100 times its size")).await;
        let flooded = growth_kb(ask(plain, "the response has more than 5242880 bytes")).await;
        let weak = growth_kb(weak(bomb)).await;
        eprintln!("memory grew by {bombed} kB for a bomb of 10 GB, {flooded} kB for an endless body; {weak} kB without bounds");
        assert!(bombed <= GROWTH_KB_MAX && flooded <= GROWTH_KB_MAX, "{bombed} kB, {flooded} kB");
        assert!(weak > GROWTH_KB_MAX, "the same check fails without bounds");
    });
}
