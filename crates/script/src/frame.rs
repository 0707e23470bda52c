//! Framing of messages between hub and worker: a length of four bytes, then JSON.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A frame from a worker. Large enough for a result, the arguments of a tool call or a request body.
pub const FROM_WORKER_MAX: usize = 2 * 1024 * 1024;
/// A frame to a worker. Large enough for a source, or for a response with all its JSON escapes.
pub const TO_WORKER_MAX: usize = 16 * 1024 * 1024;

fn too_large(bytes: usize, bytes_max: usize) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a message of {bytes} bytes, at most {bytes_max}"))
}

/// Counts the bytes of a message without storing them.
struct ByteCounter(usize);

impl Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn encode<T: Serialize>(message: &T, bytes_max: usize) -> io::Result<Vec<u8>> {
    // Serialized twice: the first pass only counts, so the buffer is allocated once and a message over the limit
    // never.
    let mut count = ByteCounter(0);
    serde_json::to_writer(&mut count, message)?;
    let bytes = count.0;
    let length = u32::try_from(bytes).ok().filter(|_| bytes <= bytes_max);
    let length = length.ok_or_else(|| too_large(bytes, bytes_max))?;
    let mut frame = Vec::with_capacity(4 + bytes);
    frame.extend_from_slice(&length.to_le_bytes());
    serde_json::to_writer(&mut frame, message)?;
    Ok(frame)
}

fn length(head: [u8; 4], bytes_max: usize) -> io::Result<usize> {
    let bytes = u32::from_le_bytes(head) as usize;
    if bytes > bytes_max { Err(too_large(bytes, bytes_max)) } else { Ok(bytes) }
}

pub fn write<T: Serialize>(to: &mut impl Write, message: &T) -> io::Result<()> {
    to.write_all(&encode(message, FROM_WORKER_MAX)?)?;
    to.flush()
}

pub fn read<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<T> {
    let mut head = [0; 4];
    from.read_exact(&mut head)?;
    let mut bytes = vec![0; length(head, TO_WORKER_MAX)?];
    from.read_exact(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

pub async fn send<T: Serialize>(to: &mut (impl AsyncWrite + Unpin), message: &T) -> io::Result<()> {
    to.write_all(&encode(message, TO_WORKER_MAX)?).await?;
    to.flush().await
}

pub async fn receive<T: DeserializeOwned>(from: &mut (impl AsyncRead + Unpin)) -> io::Result<T> {
    let mut head = [0; 4];
    from.read_exact(&mut head).await?;
    let mut bytes = vec![0; length(head, FROM_WORKER_MAX)?];
    from.read_exact(&mut bytes).await?;
    Ok(serde_json::from_slice(&bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_written_is_read_and_what_is_too_long_is_not() {
        let mut pipe = Vec::new();
        write(&mut pipe, &"a message").unwrap();
        assert_eq!(receive::<String>(&mut pipe.as_slice()).await.unwrap(), "a message");
        let long = "x".repeat(FROM_WORKER_MAX);
        assert!(write(&mut Vec::new(), &long).is_err());
        // A length over the limit makes the hub allocate nothing.
        let length = u32::MAX.to_le_bytes();
        let error = receive::<String>(&mut length.as_slice()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
