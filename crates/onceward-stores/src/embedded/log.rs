//! The log: makes a batch durable before its calls are answered.
//!
//! Segments are files that are filled with zeros before use, so that a sync changes data only. They
//! are reused once the tree holds everything in them. A frame is one batch:
//!
//! ```text
//! checksum u64 | magic u32 | payload length u32 | number u64 | payload | padding to a sector
//! ```
//!
//! Numbers follow each other without a gap. The checksum is keyed with the segment's nonce, so
//! remains of an earlier use are never taken for a frame. One frame is synced before the next is
//! written. Hence only the last frame can be torn, and everything else that does not fit is damage.
//! A sector with an acknowledged frame is never written again.
//!
//! After each sync the number of the last frame is written into `mark`, without a sync of its own.
//! It survives the death of the process, and after a power cut it is at worst out of date. So
//! damage to an acknowledged frame is always told from a torn one, except in the very last frame
//! before a power cut.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::disk::{Disk, must_be_named, private_file, sync_directory};
use super::error::OpenError;

/// Alignment of frames: the unit that disks write as a whole.
const SECTOR: usize = 512;
/// Offset of the first frame: the page of the header is never written again.
const FRAMES_FROM: u64 = 4096;
const FRAME_HEAD: usize = 24;
const FRAME_MAGIC: [u8; 4] = *b"OWfr";

const HEADER_MAGIC: [u8; 8] = *b"OWDLOG\0\x01";
const HEADER_BYTES: usize = 40;
const MARK_MAGIC: [u8; 8] = *b"OWDMRK\0\x01";
const MARK_BYTES: usize = 24;

/// Name of the file with the number of the last acknowledged frame.
pub(super) const MARK: &str = "mark";
const SPARE: &str = "spare";
const SUFFIX: &str = "log";

/// Number of a batch: one more than that of the batch before.
pub(super) type Number = u64;

/// A frame under construction: room for its head, then the payload.
#[derive(Debug)]
pub(super) struct Frame(Vec<u8>);

impl Frame {
    pub(super) fn new() -> Self {
        Self(vec![0; FRAME_HEAD])
    }

    /// The buffer to append the payload to.
    pub(super) fn payload(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Empties it for the next batch. Keeps its memory, up to a limit.
    pub(super) fn clear(&mut self) {
        self.0.truncate(FRAME_HEAD);
        self.0.shrink_to(16 << 20);
    }

    /// The bytes at a range of the whole frame.
    pub(super) fn slice(&self, range: std::ops::Range<usize>) -> &[u8] {
        &self.0[range]
    }

    fn seal(&mut self, number: Number, nonce: u64) {
        let length = self.0.len() - FRAME_HEAD;
        self.0[8..12].copy_from_slice(&FRAME_MAGIC);
        self.0[12..16].copy_from_slice(&(length as u32).to_le_bytes());
        self.0[16..24].copy_from_slice(&number.to_le_bytes());
        let sum = xxh3_64_with_seed(&self.0[8..], nonce);
        self.0[..8].copy_from_slice(&sum.to_le_bytes());
        self.0.resize(self.0.len().next_multiple_of(SECTOR), 0);
    }
}

/// A file with frames.
#[derive(Debug)]
pub(super) struct Segment {
    file: File,
    number: u64,
    nonce: u64,
    bytes: u64,
}

/// A segment that is full, and the last frame in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FullSegment {
    number: u64,
    last: Number,
}

/// The end of the log, where frames are appended.
#[derive(Debug)]
pub(super) struct Log {
    directory: PathBuf,
    disk: Arc<dyn Disk>,
    active: Segment,
    position: u64,
    last: Number,
    mark: File,
}

/// Why a frame was not appended.
#[derive(Debug)]
pub(super) enum AppendError {
    /// There is no room. Nothing was written.
    NoRoom(io::Error),
    /// The content of the disk is unknown now.
    Broken(io::Error),
}

impl AppendError {
    /// A copy-on-write file system may run out of room even for an overwrite. The frame is
    /// incomplete then, and the next one is written over it.
    fn of_write(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoRoom(error),
            _ => Self::Broken(error),
        }
    }
}

/// A log that was read.
#[derive(Debug)]
pub(super) struct Recovered {
    pub(super) log: Log,
    /// Segments before the active one.
    pub(super) full: Vec<FullSegment>,
    /// A prepared segment for when the active one is full.
    pub(super) ready: Option<Segment>,
}

impl Log {
    /// Creates a log in an empty directory. Its first frame will have number 1.
    pub(super) fn create(
        directory: &Path,
        disk: &dyn Disk,
        segment_bytes: u64,
    ) -> Result<(), OpenError> {
        prepare(directory, disk, 1, segment_bytes).map_err(OpenError::io("create", directory))?;
        let path = directory.join(MARK);
        let write = || {
            let mark = private_file().open(&path)?;
            disk.write(&mark, &encode_mark(0), 0)?;
            disk.sync(&mark)?;
            sync_directory(directory)
        };
        write().map_err(OpenError::io("write", &path))
    }

    /// Reads a log from its beginning, and passes every frame after `known` to `each`. Refuses
    /// damage. Changes nothing.
    pub(super) fn read(
        directory: &Path,
        disk: Arc<dyn Disk>,
        known: Number,
        mut each: impl FnMut(Number, &[u8]) -> Result<(), String>,
    ) -> Result<Recovered, OpenError> {
        let (mark, marked) = read_mark(directory)?;
        let numbers = segment_numbers(directory)?;
        let mut state = Reading { expected: None, known, position: FRAMES_FROM };
        let (mut full, mut tail): (Vec<FullSegment>, Vec<Segment>) = Default::default();
        for number in numbers {
            let path = segment_path(directory, number);
            let (segment, bytes) = Segment::read(&path, number)?;
            let last = state.last();
            if state.frames(&path, &segment, &bytes, &mut each)? {
                full.extend(
                    tail.drain(..).map(|old: Segment| FullSegment { number: old.number, last }),
                );
            }
            tail.push(segment);
        }
        let last = state.last();
        let mut tail = tail.into_iter();
        let Some(active) = tail.next() else {
            return Err(OpenError::corrupt(directory, "there is no segment in it"));
        };
        let path = segment_path(directory, active.number);
        if last < marked {
            let detail = format!("frame {marked} was acknowledged and cannot be read");
            return Err(OpenError::corrupt(&path, detail));
        }
        if last < known {
            let detail = format!("the tree holds frame {known}, the log ends at {last}");
            return Err(OpenError::corrupt(&path, detail));
        }
        let ready = tail.next();
        let directory = directory.to_owned();
        let log = Self { directory, disk, active, position: state.position, last, mark };
        Ok(Recovered { log, full, ready })
    }

    /// Makes durable what was read, as after the death of a process it may be in memory only.
    /// Removes the leftover of an interrupted recycling.
    pub(super) fn settle(&self) -> Result<(), OpenError> {
        for number in segment_numbers(&self.directory)? {
            let path = segment_path(&self.directory, number);
            let sync = || self.disk.sync(&File::open(&path)?);
            sync().map_err(OpenError::io("sync", &path))?;
        }
        let spare = self.directory.join(SPARE);
        match fs::remove_file(&spare) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(OpenError::io("remove", &spare)(error))
            }
            _ => Ok(()),
        }
    }

    /// The number of the last frame.
    pub(super) fn last(&self) -> Number {
        self.last
    }

    pub(super) fn segment(&self) -> u64 {
        self.active.number
    }

    /// True if the active segment is more than half full.
    pub(super) fn is_half_full(&self) -> bool {
        self.position > self.active.bytes / 2
    }

    /// The size of a segment that fits the frame.
    pub(super) fn bytes_for(frame: &Frame) -> u64 {
        FRAMES_FROM + (frame.len() as u64).next_multiple_of(SECTOR as u64)
    }

    pub(super) fn has_room(&self, frame: &Frame) -> bool {
        let needed = (frame.len() as u64).next_multiple_of(SECTOR as u64);
        self.position + needed <= self.active.bytes
    }

    /// Continues in another segment. Returns the one before.
    pub(super) fn turn(&mut self, next: Segment) -> FullSegment {
        let full = FullSegment { number: self.active.number, last: self.last };
        self.active = next;
        self.position = FRAMES_FROM;
        full
    }

    /// Appends a frame, for which there must be room, and syncs it.
    pub(super) fn append(&mut self, frame: &mut Frame) -> Result<Number, AppendError> {
        let number = self.last + 1;
        frame.seal(number, self.active.nonce);
        let file = &self.active.file;
        self.disk.write(file, &frame.0, self.position).map_err(AppendError::of_write)?;
        self.disk.sync(file).map_err(AppendError::Broken)?;
        self.position += frame.len() as u64;
        self.last = number;
        // Not synced: the mark only tells damage from a torn end.
        self.disk.write(&self.mark, &encode_mark(number), 0).map_err(AppendError::Broken)?;
        Ok(number)
    }

    /// Fails once the active segment is no longer the one in the directory.
    pub(super) fn must_be_in_place(&self) -> io::Result<()> {
        must_be_named(&self.active.file, &segment_path(&self.directory, self.active.number))
    }

    /// Syncs the mark, so that after an orderly end it is exact.
    pub(super) fn close(&self) -> io::Result<()> {
        self.disk.sync(&self.mark)
    }
}

/// Progress of reading a log.
struct Reading {
    /// Number of the next frame, once one was read.
    expected: Option<Number>,
    known: Number,
    position: u64,
}

impl Reading {
    fn last(&self) -> Number {
        self.expected.map_or(self.known, |next| next - 1)
    }

    /// Reads the frames of one segment. Returns whether there were any.
    fn frames(
        &mut self,
        path: &Path,
        segment: &Segment,
        bytes: &[u8],
        each: &mut impl FnMut(Number, &[u8]) -> Result<(), String>,
    ) -> Result<bool, OpenError> {
        let mut position = FRAMES_FROM as usize;
        while let Some((number, payload)) = frame_at(bytes, position, segment.nonce) {
            self.follows(path, number)?;
            if number > self.known {
                each(number, payload).map_err(|detail| OpenError::corrupt(path, detail))?;
            }
            position += (FRAME_HEAD + payload.len()).next_multiple_of(SECTOR);
        }
        self.nothing_after(path, segment, bytes, position)?;
        let begun = position > FRAMES_FROM as usize;
        if begun || self.expected.is_none() {
            self.position = position as u64;
        }
        Ok(begun)
    }

    fn follows(&mut self, path: &Path, number: Number) -> Result<(), OpenError> {
        match self.expected {
            // The first frame: all frames before it must be in the tree.
            None if number <= self.known + 1 => {}
            Some(expected) if number == expected => {}
            _ => {
                let wanted = self.expected.unwrap_or(self.known + 1);
                let detail = format!("frame {wanted} is missing, {number} follows");
                return Err(OpenError::corrupt(path, detail));
            }
        }
        self.expected = Some(number + 1);
        Ok(())
    }

    /// A frame is synced before the next is written. So a frame behind one that cannot be read
    /// means that the first was damaged later.
    fn nothing_after(
        &self,
        path: &Path,
        segment: &Segment,
        bytes: &[u8],
        from: usize,
    ) -> Result<(), OpenError> {
        for position in (from..bytes.len()).step_by(SECTOR) {
            if let Some((number, _)) = frame_at(bytes, position, segment.nonce) {
                let detail = format!("byte {from} is not a frame, and frame {number} follows");
                return Err(OpenError::corrupt(path, detail));
            }
        }
        Ok(())
    }
}

/// The frame at a position, if it is complete.
fn frame_at(bytes: &[u8], position: usize, nonce: u64) -> Option<(Number, &[u8])> {
    let frame = bytes.get(position..)?;
    let head = frame.get(..FRAME_HEAD)?;
    if head[8..12] != FRAME_MAGIC {
        return None;
    }
    let length = u32::from_le_bytes(head[12..16].try_into().ok()?) as usize;
    let whole = frame.get(..FRAME_HEAD.checked_add(length)?)?;
    let sum = u64::from_le_bytes(head[..8].try_into().ok()?);
    let number = u64::from_le_bytes(head[16..24].try_into().ok()?);
    (xxh3_64_with_seed(&whole[8..], nonce) == sum).then_some((number, &whole[FRAME_HEAD..]))
}

impl Segment {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Opens a segment and reads all of it.
    fn read(path: &Path, number: u64) -> Result<(Self, Vec<u8>), OpenError> {
        let open = || {
            let mut file = OpenOptions::new().read(true).write(true).open(path)?;
            let mut bytes = Vec::with_capacity(file.metadata()?.len() as usize);
            file.read_to_end(&mut bytes)?;
            Ok((file, bytes))
        };
        let (file, bytes) = open().map_err(OpenError::io("read", path))?;
        let corrupt = |detail: &str| OpenError::corrupt(path, detail);
        let header = bytes.get(..HEADER_BYTES).ok_or_else(|| corrupt("its header is cut"))?;
        let word = |at: usize| header[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        if header[..8] != HEADER_MAGIC || word(32) != xxh3_64(&header[..32]) {
            return Err(corrupt("its header cannot be read"));
        }
        if word(8) != number {
            return Err(corrupt("its header is of another segment"));
        }
        let (nonce, size) = (word(16), word(24));
        if bytes.len() as u64 != size {
            return Err(corrupt("it is shorter or longer than it was made"));
        }
        Ok((Self { file, number, nonce, bytes: size }, bytes))
    }

    fn write_header(&self, disk: &dyn Disk) -> io::Result<()> {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&HEADER_MAGIC);
        header[8..16].copy_from_slice(&self.number.to_le_bytes());
        header[16..24].copy_from_slice(&self.nonce.to_le_bytes());
        header[24..32].copy_from_slice(&self.bytes.to_le_bytes());
        let sum = xxh3_64(&header[..32]);
        header[32..].copy_from_slice(&sum.to_le_bytes());
        disk.write(&self.file, &header, 0)?;
        disk.sync(&self.file)
    }
}

/// Prepares a new segment: full of zeros, with its header, durable under its name.
pub(super) fn prepare(
    directory: &Path,
    disk: &dyn Disk,
    number: u64,
    bytes: u64,
) -> io::Result<Segment> {
    let spare = directory.join(SPARE);
    let file = private_file().open(&spare)?;
    let written = fill_with_zeros(&file, disk, bytes);
    if written.is_err() {
        // An unfinished segment would take up the room that is missing.
        let _ = fs::remove_file(&spare);
    }
    written?;
    name_spare(directory, disk, file, number, bytes)
}

/// Reuses a segment whose frames are all in the tree.
pub(super) fn recycle(
    directory: &Path,
    disk: &dyn Disk,
    old: FullSegment,
    number: u64,
) -> io::Result<Segment> {
    let spare = directory.join(SPARE);
    // Renamed first: a file with a segment's name always has that segment's header.
    fs::rename(segment_path(directory, old.number), &spare)?;
    sync_directory(directory)?;
    let file = OpenOptions::new().write(true).open(&spare)?;
    let bytes = file.metadata()?.len();
    name_spare(directory, disk, file, number, bytes)
}

fn name_spare(
    directory: &Path,
    disk: &dyn Disk,
    file: File,
    number: u64,
    bytes: u64,
) -> io::Result<Segment> {
    let segment = Segment { file, number, nonce: rand::random(), bytes };
    segment.write_header(disk)?;
    fs::rename(directory.join(SPARE), segment_path(directory, number))?;
    sync_directory(directory)?;
    Ok(segment)
}

/// Removes a segment whose frames are all in the tree.
pub(super) fn remove(directory: &Path, old: FullSegment) -> io::Result<()> {
    fs::remove_file(segment_path(directory, old.number))?;
    sync_directory(directory)
}

impl FullSegment {
    /// True if a tree that holds all frames up to `number` holds all of this segment.
    pub(super) fn is_within(&self, number: Number) -> bool {
        self.last <= number
    }
}

fn fill_with_zeros(file: &File, disk: &dyn Disk, bytes: u64) -> io::Result<()> {
    let zeros = vec![0; 1 << 20];
    let mut position = 0;
    while position < bytes {
        let count = (bytes - position).min(zeros.len() as u64);
        disk.write(file, &zeros[..count as usize], position)?;
        position += count;
    }
    disk.sync(file)
}

fn segment_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:012}.{SUFFIX}"))
}

/// Returns the numbers of all segments, which must follow each other.
fn segment_numbers(directory: &Path) -> Result<Vec<u64>, OpenError> {
    let entries = fs::read_dir(directory).map_err(OpenError::io("read", directory))?;
    let mut numbers = Vec::new();
    for entry in entries {
        let name = entry.map_err(OpenError::io("read", directory))?.file_name();
        let name = name.to_string_lossy();
        let number = name.strip_suffix(SUFFIX).and_then(|name| name.strip_suffix('.'));
        match number.map(str::parse) {
            Some(Ok(number)) => numbers.push(number),
            None if name == MARK || name == SPARE => {}
            _ => return Err(OpenError::corrupt(&directory.join(&*name), "it is not ours")),
        }
    }
    numbers.sort_unstable();
    if let Some(gap) = numbers.windows(2).find(|pair| pair[0] + 1 != pair[1]) {
        return Err(OpenError::corrupt(&segment_path(directory, gap[0] + 1), "it is missing"));
    }
    Ok(numbers)
}

fn encode_mark(number: Number) -> [u8; MARK_BYTES] {
    let mut mark = [0; MARK_BYTES];
    mark[..8].copy_from_slice(&MARK_MAGIC);
    mark[8..16].copy_from_slice(&number.to_le_bytes());
    let sum = xxh3_64(&mark[..16]);
    mark[16..].copy_from_slice(&sum.to_le_bytes());
    mark
}

fn read_mark(directory: &Path) -> Result<(File, Number), OpenError> {
    let path = directory.join(MARK);
    let open = || {
        let mut file = OpenOptions::new().read(true).write(true).open(&path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok::<_, io::Error>((file, bytes))
    };
    let (file, bytes) = match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(OpenError::corrupt(&path, "it is missing"));
        }
        read => read.map_err(OpenError::io("read", &path))?,
    };
    let number = bytes.get(8..16).and_then(|word| word.try_into().ok()).map(u64::from_le_bytes);
    match number {
        Some(number) if bytes == encode_mark(number) => Ok((file, number)),
        _ => Err(OpenError::corrupt(&path, "it cannot be read")),
    }
}
