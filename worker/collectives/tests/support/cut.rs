//! Cuts connections of this process silently: their sockets drop everything that arrives.

use std::{
    mem::{size_of, zeroed},
    os::fd::RawFd,
};

/// Connections to a port of this process, cut in both directions until this is dropped or restored.
pub(crate) struct Cut(Vec<RawFd>);

impl Cut {
    /// Cuts all connections that were accepted at `port`.
    pub(crate) fn connections_to(port: u16) -> Self {
        let ends: Vec<RawFd> = (3..1024)
            .filter(|&fd| {
                let names = [libc::getsockname, libc::getpeername].map(|name| port_of(fd, name));
                names[0].is_some() && names[1].is_some() && names.contains(&Some(port))
            })
            .collect();
        assert!(ends.len() >= 2, "connections at {port}: {ends:?}");
        let drop_all = libc::sock_filter {
            code: (libc::BPF_RET | libc::BPF_K) as u16,
            jt: 0,
            jf: 0,
            k: 0,
        };
        let mut program = [drop_all];
        let program = libc::sock_fprog {
            len: 1,
            filter: program.as_mut_ptr(),
        };
        for end in &ends {
            set(*end, libc::SO_ATTACH_FILTER, &program);
        }
        Self(ends)
    }

    pub(crate) fn restore(self) {
        for end in &self.0 {
            set(*end, libc::SO_DETACH_FILTER, &0i32);
        }
    }
}

fn set<T>(fd: RawFd, option: libc::c_int, value: &T) {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes, and the filter program that they point to lives until
    // then.
    let done = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            option,
            (&raw const *value).cast(),
            len,
        )
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

type Name = unsafe extern "C" fn(RawFd, *mut libc::sockaddr, *mut libc::socklen_t) -> libc::c_int;

fn port_of(fd: RawFd, name: Name) -> Option<u16> {
    // SAFETY: a socket address is integers only.
    let mut address: libc::sockaddr_in = unsafe { zeroed() };
    let mut len = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes.
    let known = unsafe { name(fd, (&raw mut address).cast(), &raw mut len) } == 0;
    let is_inet = i32::from(address.sin_family) == libc::AF_INET;
    (known && is_inet).then(|| u16::from_be(address.sin_port))
}
