//! The local Unix socket, and the lock that makes one process per home the hub.

mod client;

pub use client::{HubClient, HubRefusal};

use crate::hub::Hub;
use crate::line::{self, LineCaller, UnusableClient};
use std::fs::Permissions;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader,
};
use tokio::net::{UnixListener, UnixStream};
use tokio_util::task::TaskTracker;

/// The socket's file name in the home.
const SOCKET: &str = "hub.sock";
/// The lock file. The process that holds its lock is the hub.
const LOCK: &str = "hub.lock";
/// Limit of `sockaddr_un` without the final NUL.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// The line by which a connection says for which client it speaks.
const CALLER_LINE: &str = "client ";
/// Longer than the line, and than the hub's answer to it.
const CALLER_BYTES_MAX: u64 = 256;
/// Both sides are processes of this machine.
const CALLER_WITHIN: Duration = Duration::from_secs(5);
/// The hub's answer.
const ADMITTED: &str = "admitted";

/// Connection attempts to a hub that is just starting, and their interval.
const CONNECT_TRIES: u32 = 50;
const CONNECT_PAUSE: Duration = Duration::from_millis(100);

/// Length of the lock file's content.
const HOLDER_BYTES_MAX: u64 = 256;

/// The hub process of a home, from its lock file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubLockHolder {
    pub pid: u32,
    /// The PID namespace of that id.
    namespace: u64,
}

impl HubLockHolder {
    /// Returns whether the process id is valid in this PID namespace.
    pub fn is_in_this_namespace(&self) -> bool {
        process_namespace() == Some(self.namespace)
    }
}

fn process_namespace() -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self/ns/pid").ok().map(|metadata| metadata.ino())
}

/// Returns the hub process of `dir`, if one runs and has written its id.
pub fn holder(dir: &Path) -> Option<HubLockHolder> {
    use std::io::Read;
    let lock = std::fs::File::open(dir.join(LOCK)).ok()?;
    // Without a lock, the content is of a hub that has exited.
    let locked = rustix::fs::flock(lock.as_fd(), rustix::fs::FlockOperation::NonBlockingLockShared);
    if locked != Err(rustix::io::Errno::WOULDBLOCK) {
        return None;
    }
    let mut text = String::new();
    lock.take(HOLDER_BYTES_MAX).read_to_string(&mut text).ok()?;
    let (pid, namespace) = text.trim_end().split_once(' ')?;
    Some(HubLockHolder { pid: pid.parse().ok()?, namespace: namespace.parse().ok()? })
}

/// Proof that this process is the hub of its home. Released on drop, or by the kernel when the process dies.
#[derive(Debug)]
pub struct HubLock {
    lock: std::fs::File,
    dir: PathBuf,
}

const CLAIM_TRIES: usize = 3;

#[expect(
    clippy::disallowed_methods,
    reason = "a process that is about to become the hub has nothing else to do"
)]
fn pause() {
    std::thread::sleep(std::time::Duration::from_millis(2));
}

/// Tries to become the hub of `dir`. `None` means that another process is.
pub fn claim(dir: &Path) -> io::Result<Option<HubLock>> {
    let lock = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(dir.join(LOCK))?;
    lock.set_permissions(Permissions::from_mode(0o600))?;
    let mut tries = CLAIM_TRIES;
    let locked = loop {
        tries -= 1;
        match rustix::fs::flock(lock.as_fd(), rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            // `holder` takes the lock for a moment.
            Err(rustix::io::Errno::WOULDBLOCK) if tries > 0 => pause(),
            locked => break locked,
        }
    };
    match locked {
        Ok(()) => {
            // The content is of a hub that has exited. If it stays, it names a process that is an ancestor of none.
            let _ = lock.set_len(0);
            Ok(Some(HubLock { lock, dir: dir.to_owned() }))
        }
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns a path to the socket within the kernel's limit, and the descriptor that keeps the path valid.
fn socket_path(dir: &Path) -> io::Result<(PathBuf, Option<std::fs::File>)> {
    let path = dir.join(SOCKET);
    if path.as_os_str().len() <= SOCKET_PATH_BYTES_MAX {
        return Ok((path, None));
    }
    // For a long path, the open directory has a short one.
    use std::os::fd::AsRawFd;
    let folder = std::fs::File::open(dir)?;
    let short = format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd());
    Ok((short.into(), Some(folder)))
}

impl HubLock {
    /// Writes this process's id to the lock file, for commands that upstream servers start.
    pub fn name_holder(&self) -> io::Result<()> {
        use std::os::unix::fs::FileExt;
        let text = format!("{} {}\n", std::process::id(), process_namespace().unwrap_or_default());
        self.lock.set_len(0)?;
        self.lock.write_all_at(text.as_bytes(), 0)
    }

    /// Opens the socket for this user only. A stale socket is replaced.
    pub fn listen(&self) -> io::Result<UnixListener> {
        let (path, _folder) = socket_path(&self.dir)?;
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // The directory is 0700, so no other user can connect before the permissions are set.
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        Ok(listener)
    }
}

impl Drop for HubLock {
    fn drop(&mut self) {
        // A stale socket would be harmless: the next hub replaces it.
        let _ = std::fs::remove_file(self.dir.join(SOCKET));
    }
}

/// Connects to the hub of `dir`.
pub async fn connect(dir: &Path) -> io::Result<UnixStream> {
    let (path, _folder) = socket_path(dir)?;
    #[expect(clippy::disallowed_methods, reason = "the hub's own socket, on this machine")]
    UnixStream::connect(path).await
}

/// How a process reaches the hub of its home.
#[derive(Debug)]
pub enum HubAccess {
    /// It is the hub itself, as long as it holds the lock.
    Claimed(HubLock),
    Connected(UnixStream),
    /// Another process holds the lock and accepts no connection.
    Silent,
}

/// Becomes the hub of `dir`, or connects to the running one. Other processes may race for it, and a hub that is just
/// starting does not listen yet.
pub async fn claim_or_connect(dir: &Path) -> io::Result<HubAccess> {
    for _ in 0..CONNECT_TRIES {
        if let Some(lock) = claim(dir)? {
            return Ok(HubAccess::Claimed(lock));
        }
        if let Ok(stream) = connect(dir).await {
            return Ok(HubAccess::Connected(stream));
        }
        tokio::time::sleep(CONNECT_PAUSE).await;
    }
    Ok(HubAccess::Silent)
}

/// Waits until no other process uses the hub through its socket.
pub async fn guests_gone(hub: &Hub) {
    while hub.has_local_guests() {
        tokio::time::sleep(CONNECT_PAUSE).await;
    }
}

/// Serves the socket until the hub closes. `is_behind` returns whether a process belongs to an upstream server: such a
/// peer is not the user, and is refused (confused deputy).
pub async fn serve(
    hub: Arc<Hub>,
    listener: UnixListener,
    is_behind: impl Fn(i32) -> bool + Send + Sync + 'static,
) {
    let is_behind = Arc::new(is_behind);
    let connections = TaskTracker::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(target: "mcp", %error, "could not accept a local connection");
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = hub.closing.cancelled() => break,
        };
        let (hub, is_behind) = (hub.clone(), is_behind.clone());
        connections.spawn(async move {
            // A peer outside of this PID namespace has no id here, and no upstream server can be there.
            let refused = match stream.peer_cred().map(|peer| peer.pid().filter(|pid| *pid > 0)) {
                Ok(Some(pid)) => portcullis_core::run_blocking(move || is_behind(pid)).await.unwrap_or(true),
                Ok(None) => false,
                Err(_) => true,
            };
            if refused {
                tracing::warn!(target: "mcp", "refused a process of an upstream server at the local socket");
                return;
            }
            let _guest = LocalGuest::count(&hub);
            let (from, mut to) = stream.into_split();
            let mut from = BufReader::new(from);
            let caller = match read_caller(&hub, &mut from, &mut to).await {
                Ok(Some(caller)) => caller,
                Ok(None) => return,
                Err(error) => {
                    tracing::debug!(target: "mcp", %error, "local connection ended");
                    return;
                }
            };
            if let Err(error) = line::serve(hub, "socket", caller, from, to).await {
                tracing::debug!(target: "mcp", %error, "local connection ended");
            }
        });
    }
    connections.close();
    connections.wait().await;
}

/// A connection that is counted while it lasts: a hub that is about to end waits for it.
struct LocalGuest(Arc<Hub>);

impl LocalGuest {
    fn count(hub: &Arc<Hub>) -> LocalGuest {
        hub.local_guests.fetch_add(1, Ordering::AcqRel);
        LocalGuest(hub.clone())
    }
}

impl Drop for LocalGuest {
    fn drop(&mut self) {
        self.0.local_guests.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Reads whom a connection speaks for: `client NAME` in a line before the first message, which no message begins with, or
/// nothing. Says whether that client may call. `None` if it may not, or has gone.
async fn read_caller(
    hub: &Hub,
    from: &mut (impl AsyncBufRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
) -> io::Result<Option<LineCaller>> {
    let first = tokio::select! {
        read = from.fill_buf() => read?.first().copied(),
        () = hub.closing.cancelled() => None,
    };
    match first {
        None => return Ok(None),
        Some(first) if first != CALLER_LINE.as_bytes()[0] => return Ok(Some(LineCaller::Local)),
        Some(_) => {}
    }
    let mut line = Vec::new();
    let mut bounded = from.take(CALLER_BYTES_MAX);
    let reading = bounded.read_until(b'\n', &mut line);
    tokio::time::timeout(CALLER_WITHIN, reading).await.map_err(|_| io::ErrorKind::TimedOut)??;
    let line = String::from_utf8_lossy(&line);
    let named = line.strip_suffix('\n').and_then(|line| line.strip_prefix(CALLER_LINE));
    let caller = named.map_or(Err(UnusableClient::Unknown), |name| LineCaller::named(hub, name));
    let said = caller.as_ref().map_or_else(ToString::to_string, |_| ADMITTED.to_owned());
    to.write_all(format!("{said}\n").as_bytes()).await?;
    to.flush().await?;
    Ok(caller.ok())
}

/// Tells the hub at the other end for which client this process speaks, and returns why that client may not call, if so.
pub async fn name_caller(hub: &mut UnixStream, client: &str) -> io::Result<Result<(), String>> {
    hub.write_all(format!("{CALLER_LINE}{client}\n").as_bytes()).await?;
    // Byte by byte: what follows the line belongs to the bridge.
    let (mut line, mut byte) = (Vec::new(), [0]);
    let reading = async {
        while line.len() < CALLER_BYTES_MAX as usize && hub.read(&mut byte).await? > 0 && byte != *b"\n" {
            line.push(byte[0]);
        }
        Ok::<(), io::Error>(())
    };
    tokio::time::timeout(CALLER_WITHIN, reading).await.map_err(|_| io::ErrorKind::TimedOut)??;
    let line = String::from_utf8_lossy(&line);
    Ok(match line.as_ref() {
        ADMITTED => Ok(()),
        // It takes the line for a message.
        line if line.is_empty() || line.starts_with('{') => {
            Err("the running hub is of an older version, which knows no `--client`; restart it".to_owned())
        }
        why => Err(why.to_owned()),
    })
}

/// How a bridge ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BridgeEnd {
    /// The client closed its side.
    ClientLeft,
    /// The hub closed the connection.
    HubLeft,
}

/// Copies bytes both ways until one side ends.
pub async fn bridge<R, W>(hub: UnixStream, mut from: R, mut to: W) -> io::Result<BridgeEnd>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let (mut hub_reads, mut hub_writes) = hub.into_split();
    let up = async {
        tokio::io::copy(&mut from, &mut hub_writes).await?;
        hub_writes.shutdown().await
    };
    let down = async {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let count = tokio::io::AsyncReadExt::read(&mut hub_reads, &mut buffer).await?;
            if count == 0 {
                return Ok::<(), io::Error>(());
            }
            to.write_all(&buffer[..count]).await?;
            to.flush().await?;
        }
    };
    tokio::pin!(up, down);
    tokio::select! {
        up = &mut up => {
            // The client has closed its input; the rest of the hub's output is passed on.
            match up {
                Ok(()) => down.await.map(|()| BridgeEnd::ClientLeft),
                Err(_) => Ok(BridgeEnd::HubLeft),
            }
        }
        down = &mut down => down.map(|()| BridgeEnd::HubLeft),
    }
}
