//! What do the monitor and the supervisor say to each other?
//!
//! One message is one packet on a socketpair that keeps boundaries; a closed
//! end means that the other process is gone. Messages are few: what the monitor
//! hears (signals), and what the supervisor has decided.
//!
//! May use: `sys`.

use crate::sys::errno::Result;
use crate::sys::fd::{self, Fd, OwnedFd};
use crate::sys::signal::Received;

/// Bytes of a message.
const BYTES: usize = 20;

/// What is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// To the supervisor: a cancelling signal came.
    Cancel(Received),
    /// To the supervisor: another signal came; pass it to the command.
    Forward(Received),
    /// To the supervisor: stop the tree (Ctrl-Z), and say so.
    Stop,
    /// To the supervisor: what you stopped may go on.
    Continue,
    /// To the supervisor: the process between us is gone.
    GuardLost,
    /// To the monitor: the tree is stopped.
    Stopped,
    /// To the monitor: this child of yours is the guard after all.
    Guarded,
    /// To the monitor: how to end.
    Verdict {
        /// With this status, unless something about the record changes it.
        status: u8,
        /// Or by this signal, 0 for none.
        signal: i32,
        /// The command did not end by itself: it may have left the terminal in
        /// a bad state.
        restore_terminal: bool,
    },
}

impl Message {
    fn to_bytes(self) -> [u8; BYTES] {
        let (tag, words) = match self {
            Self::Cancel(signal) => (1, of_signal(signal)),
            Self::Forward(signal) => (2, of_signal(signal)),
            Self::Stop => (3, [0; 4]),
            Self::Continue => (4, [0; 4]),
            Self::GuardLost => (5, [0; 4]),
            Self::Stopped => (6, [0; 4]),
            Self::Guarded => (8, [0; 4]),
            Self::Verdict { status, signal, restore_terminal } => {
                (7, [i32::from(status), signal, i32::from(restore_terminal), 0])
            }
        };
        let mut bytes = [0; BYTES];
        let words = core::iter::once(tag).chain(words).flat_map(i32::to_ne_bytes);
        bytes.iter_mut().zip(words).for_each(|(to, from)| *to = from);
        bytes
    }

    fn from_bytes(bytes: &[u8; BYTES]) -> Option<Self> {
        let word = |index: usize| -> Option<i32> {
            let at = index * 4;
            Some(i32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
        };
        let signal = Received {
            signal: word(1)?,
            code: word(2)?,
            pid: word(3)?,
            uid: word(4)?.cast_unsigned(),
        };
        Some(match word(0)? {
            1 => Self::Cancel(signal),
            2 => Self::Forward(signal),
            3 => Self::Stop,
            4 => Self::Continue,
            5 => Self::GuardLost,
            6 => Self::Stopped,
            8 => Self::Guarded,
            7 => Self::Verdict {
                status: u8::try_from(word(1)?).ok()?,
                signal: word(2)?,
                restore_terminal: word(3)? != 0,
            },
            _ => return None,
        })
    }
}

const fn of_signal(signal: Received) -> [i32; 4] {
    [signal.signal, signal.code, signal.pid, signal.uid.cast_signed()]
}

/// One end.
#[derive(Debug)]
pub struct Channel(OwnedFd);

/// What a look into the channel found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Nothing now.
    Nothing,
    /// This.
    Message(Message),
    /// The other end is gone.
    Closed,
}

impl Channel {
    /// Both ends.
    ///
    /// # Errors
    /// EMFILE, ENFILE.
    pub fn pair() -> Result<(Self, Self)> {
        fd::socketpair().map(|(a, b)| (Self(a), Self(b)))
    }

    /// To wait on.
    #[must_use]
    pub const fn fd(&self) -> Fd<'_> {
        self.0.fd()
    }

    /// Says something. A full channel means that the other end does not listen,
    /// a closed one that it is gone; both show elsewhere, so there is no error.
    pub fn say(&self, message: Message) {
        let _ = fd::send(self.fd(), &message.to_bytes());
    }

    /// Takes one message.
    #[must_use]
    pub fn hear(&self) -> Heard {
        let mut bytes = [0; BYTES];
        match fd::receive(self.fd(), &mut bytes) {
            Ok(0) => Heard::Closed,
            Ok(_) => Message::from_bytes(&bytes).map_or(Heard::Nothing, Heard::Message),
            Err(crate::sys::errno::Errno::ECONNRESET) => Heard::Closed,
            Err(_) => Heard::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNAL: Received = Received { signal: 15, code: -1, pid: 4711, uid: u32::MAX };

    const ALL: [Message; 8] = [
        Message::Guarded,
        Message::Cancel(SIGNAL),
        Message::Forward(SIGNAL),
        Message::Stop,
        Message::Continue,
        Message::GuardLost,
        Message::Stopped,
        Message::Verdict { status: 124, signal: 2, restore_terminal: true },
    ];

    #[test]
    fn every_message_arrives_as_it_was_said() {
        let (a, b) = Channel::pair().expect("two descriptors");
        assert_eq!(b.hear(), Heard::Nothing);
        for message in ALL {
            a.say(message);
            assert_eq!(b.hear(), Heard::Message(message));
        }
        drop(a);
        assert_eq!(b.hear(), Heard::Closed);
    }

    #[test]
    fn nonsense_is_no_message() {
        assert_eq!(Message::from_bytes(&[0xff; BYTES]), None);
        assert_eq!(Message::from_bytes(&[0; BYTES]), None);
    }
}
