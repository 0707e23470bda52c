//! Which IP addresses are public (SSRF protection).
//!
//! IPv6 uses an allowlist, IPv4 a denylist. The ranges are all those of the IANA special-purpose registries, including
//! those that are globally reachable, because no site is there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Special IPv4 ranges as network and prefix length.
const SPECIAL_V4: [(Ipv4Addr, u32); 18] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    // Link-local, with the metadata service of most clouds, which hands out credentials.
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    // The metadata service of Azure, at an address that looks public.
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 31, 196, 0), 24),
    (Ipv4Addr::new(192, 52, 193, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(192, 175, 48, 0), 24),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    // Multicast, reserved and broadcast.
    (Ipv4Addr::new(224, 0, 0, 0), 3),
];

/// The only IPv6 range from which public addresses are allocated.
const PUBLIC_V6: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// Special ranges within it.
const SPECIAL_V6: [(Ipv6Addr, u32); 6] = [
    // Protocol assignments: Teredo, ORCHID, benchmarking, and future ones.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    // 6to4 embeds an IPv4 address and is deprecated.
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0), 48),
    (Ipv6Addr::new(0x3ffe, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

/// NAT64: an IPv4 address as an IPv6-only network sees it. The local prefix 64:ff9b:1::/48 is refused with the rest.
const NAT64: (Ipv6Addr, u32) = (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

/// Returns whether an address is public. An IPv4 address embedded in IPv6 is judged itself.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(inner) => is_public_v4(inner),
            None => is_public_v6(address),
        },
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let within = |(network, length): &(Ipv4Addr, u32)| {
        (address.to_bits() ^ network.to_bits()).checked_shr(32 - length).unwrap_or(0) == 0
    };
    !SPECIAL_V4.iter().any(within)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let within = |(network, length): &(Ipv6Addr, u32)| {
        (address.to_bits() ^ network.to_bits()).checked_shr(128 - length).unwrap_or(0) == 0
    };
    if within(&NAT64) {
        return is_public_v4(embedded(address));
    }
    within(&PUBLIC_V6)
        && !SPECIAL_V6.iter().any(within)
        && (!is_isatap(address) || is_public_v4(embedded(address)))
}

/// Returns the IPv4 address in the last four bytes.
#[expect(clippy::cast_possible_truncation, reason = "the last 32 bits are wanted")]
fn embedded(address: Ipv6Addr) -> Ipv4Addr {
    Ipv4Addr::from_bits(address.to_bits() as u32)
}

/// Returns whether the interface identifier is ISATAP, which embeds an IPv4 address in any network.
fn is_isatap(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    segments[5] == 0x5efe && segments[4] & !0x0200 == 0
}

/// Returns whether no public name server has this name: one without a dot, or below a domain for private use (RFC 6761,
/// RFC 6762, RFC 8375, and what ICANN reserved).
pub(crate) fn is_private_name(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    match host.rsplit_once('.') {
        None => true,
        Some((_, top)) => PRIVATE_DOMAINS.contains(&top) || host.ends_with(".home.arpa"),
    }
}

/// Top-level domains that are never public.
const PRIVATE_DOMAINS: [&str; 11] = [
    "corp",
    "example",
    "home",
    "internal",
    "intranet",
    "invalid",
    "lan",
    "local",
    "localhost",
    "private",
    "test",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_addresses_pass() {
        for text in [
            "1.1.1.1",
            "8.8.8.8",
            "93.184.216.34",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.255.255",
            "172.32.0.1",
            "192.0.1.1",
            "198.17.255.255",
            "198.20.0.1",
            "223.255.255.255",
            "168.63.129.17",
            "11.0.0.1",
            "2606:2800:220:1:248:1893:25c8:1946",
            "2001:4860:4860::8888",
            "2001:200::1",
            "2a00:1450::1",
            "3ffd::1",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2606:4700::5efe:808:808",
        ] {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn special_addresses_are_refused_however_they_are_wrapped() {
        for v4 in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.127.127.127",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.0.10",
            "192.0.2.1",
            "192.31.196.1",
            "192.52.193.1",
            "192.88.99.1",
            "192.168.0.1",
            "192.175.48.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
        ] {
            let address: Ipv4Addr = v4.parse().unwrap();
            assert!(!is_public(address.into()), "{v4}");
            let [a, b, c, d] = address.octets();
            let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
            for wrapped in [
                address.to_ipv6_mapped(),
                address.to_ipv6_compatible(),
                Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, high, low),
                Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
                Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, !high, !low),
                Ipv6Addr::new(0x2606, 0x4700, 0, 0, 0, 0x5efe, high, low),
                Ipv6Addr::new(0x2606, 0x4700, 0, 0, 0x200, 0x5efe, high, low),
                Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, low),
            ] {
                assert!(!is_public(wrapped.into()), "{v4} as {wrapped}");
            }
        }
        for v6 in [
            "::",
            "::1",
            "fe80::1",
            "fec0::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "100::1",
            "2001:db8::1",
            "2001:10::1",
            "2001:20::1",
            "2001:2::1",
            "2001:1ff::1",
            "3fff::1",
            "3ffe::1",
            "5f00::1",
            "4000::1",
            "1fff::1",
            "::8.8.8.8",
            "2002:808:808::1",
            "64:ff9b:1::808:808",
        ] {
            assert!(!is_public(v6.parse().unwrap()), "{v6}");
        }
    }
}
