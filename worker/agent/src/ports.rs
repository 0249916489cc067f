//! Ports for coordinators of the users' libraries: free ones that were not offered lately.
//!
//! A library that comes late to the port of a round or group that is over would meet the next one there.
//!
//! Not promised: that nothing else binds a port between its offer and its use.

use std::{
    collections::VecDeque,
    io,
    net::{IpAddr, TcpListener},
};

/// So many offers are remembered, and at most so many ports are tried.
const REMEMBERED: usize = 256;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Ports(VecDeque<u16>);

impl Ports {
    /// A free port of this address; `offered` is the one that the driver has just been told.
    pub(crate) fn next(&mut self, address: IpAddr, offered: u16) -> io::Result<u16> {
        self.0.push_back(offered);
        if self.0.len() > REMEMBERED {
            self.0.pop_front();
        }
        // Those that do not fit stay bound meanwhile, so that each try gives another one.
        let mut tried = Vec::new();
        loop {
            let listener = TcpListener::bind((address, 0))?;
            let port = listener.local_addr()?.port();
            if !self.0.contains(&port) || tried.len() > REMEMBERED {
                return Ok(port);
            }
            tried.push(listener);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, net::Ipv4Addr};

    use super::*;

    #[test]
    fn no_port_is_offered_again_soon() {
        let (mut ports, mut offered) = (Ports::default(), BTreeSet::new());
        let mut last = 0;
        for _ in 0..REMEMBERED {
            last = ports.next(Ipv4Addr::LOCALHOST.into(), last).unwrap();
            assert!(offered.insert(last), "{last} is offered again");
        }
    }
}
