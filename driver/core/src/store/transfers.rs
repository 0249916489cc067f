//! Values on their way to and from workers, piece by piece.

use std::collections::BTreeMap;

use elasticrun_protocol::store::Refused;

use super::{Client, Space, values::ValueId};

/// A worker and the number of a value.
type Staged = (Client, u64);

/// A value that a worker stages. Its whole size is reserved.
#[derive(Clone, Debug)]
struct Upload {
    space: Space,
    length: usize,
    bytes: Vec<u8>,
}

/// A value that a worker reads. The download is one of its holders.
#[derive(Clone, Copy, Debug)]
pub(super) struct Download {
    space: Space,
    pub(super) value: ValueId,
}

/// All staged values.
#[derive(Clone, Debug, Default)]
pub(super) struct Transfers {
    uploads: BTreeMap<Staged, Upload>,
    downloads: BTreeMap<Staged, Download>,
    /// The number of the last download.
    last: u64,
    /// The size of all uploads.
    reserved: usize,
}

impl Transfers {
    /// The bytes that uploads reserve. The values of downloads count with all others.
    pub(super) fn bytes(&self) -> usize {
        self.reserved
    }

    /// The number of values that a worker transfers.
    pub(super) fn of(&self, client: Client) -> usize {
        let all = (client, 0)..=(client, u64::MAX);
        self.uploads.range(all.clone()).count() + self.downloads.range(all).count()
    }

    /// Begins an upload. `None` if the machine lacks the memory.
    pub(super) fn begin(&mut self, staged: Staged, space: Space, length: usize) -> Option<()> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).ok()?;
        self.reserved += length;
        let upload = Upload {
            space,
            length,
            bytes,
        };
        self.uploads.insert(staged, upload);
        Some(())
    }

    /// Adds the next piece of an upload.
    pub(super) fn extend(
        &mut self,
        staged: Staged,
        offset: u64,
        piece: &[u8],
    ) -> Result<(), Refused> {
        let upload = self.uploads.get_mut(&staged);
        let upload = upload.filter(|upload| {
            upload.bytes.len() as u64 == offset && piece.len() <= upload.length - upload.bytes.len()
        });
        let upload = upload.ok_or(Refused::NotStaged { staged: staged.1 })?;
        upload.bytes.extend_from_slice(piece);
        Ok(())
    }

    /// Ends an upload and gives its value.
    pub(super) fn take_upload(&mut self, staged: Staged, space: Space) -> Result<Vec<u8>, Refused> {
        let is_whole =
            |upload: &Upload| upload.bytes.len() == upload.length && upload.space == space;
        match self.end_upload(staged) {
            Some(upload) if is_whole(&upload) => Ok(upload.bytes),
            _ => Err(Refused::NotStaged { staged: staged.1 }),
        }
    }

    /// Ends an upload.
    pub(super) fn discard_upload(&mut self, staged: Staged) {
        self.end_upload(staged);
    }

    fn end_upload(&mut self, staged: Staged) -> Option<Upload> {
        let upload = self.uploads.remove(&staged)?;
        self.reserved -= upload.length;
        Some(upload)
    }

    /// Begins a download and gives its number. The caller adds it to the holders of the value.
    pub(super) fn add_download(&mut self, client: Client, space: Space, value: ValueId) -> u64 {
        self.last += 1;
        let download = Download { space, value };
        self.downloads.insert((client, self.last), download);
        self.last
    }

    pub(super) fn download(&self, staged: Staged) -> Result<Download, Refused> {
        let download = self.downloads.get(&staged).copied();
        download.ok_or(Refused::NotStaged { staged: staged.1 })
    }

    /// Ends a download and gives its value, which the caller releases.
    #[must_use]
    pub(super) fn end_download(&mut self, staged: Staged) -> Option<ValueId> {
        Some(self.downloads.remove(&staged)?.value)
    }

    /// Ends all transfers of a worker and gives the values of its downloads, which the caller releases.
    #[must_use]
    pub(super) fn left(&mut self, client: Client) -> Vec<ValueId> {
        self.end(|(at, _), _| *at == client)
    }

    /// The same for values of the round.
    #[must_use]
    pub(super) fn take_round(&mut self) -> Vec<ValueId> {
        self.end(|_, space| space == Space::Round)
    }

    fn end(&mut self, which: impl Fn(&Staged, Space) -> bool) -> Vec<ValueId> {
        let ended = (self.uploads).extract_if(.., |staged, upload| which(staged, upload.space));
        self.reserved -= ended.map(|(_, upload)| upload.length).sum::<usize>();
        let ended =
            (self.downloads).extract_if(.., |staged, download| which(staged, download.space));
        ended.map(|(_, download)| download.value).collect()
    }
}
