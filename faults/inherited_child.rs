//! Does: forks a sleeper, then becomes the command in its arguments: corral, say.
//! corral must: started so, leave the sleeper alone: it did not start it.
//! Exists: `sleep 99 & exec corral …`: a child from before is a child all the same.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

fn main(args: Args) -> u8 {
    let pid = fork();
    if pid == 0 {
        sleep_forever();
    }
    say(b"sleeper", pid as usize);
    // The alarm would go on in the new program.
    disarm();
    let Some(path) = args.get(1) else {
        return CANNOT;
    };
    // SAFETY: the pointers come from the initial stack, with their closing null.
    unsafe { syscall!(EXECVE, path.as_ptr(), args.pointer(1), args.environment()) };
    127
}
