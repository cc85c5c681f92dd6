//! A panic leaves it: it is written without the SDK, which would catch it. Caught by survives-a-round.

#[repr(C)]
pub struct Plugin {
    size: u32,
    major: u16,
    minor: u16,
    flags: u32,
    reserved: u32,
    calls: [usize; 4],
}

extern "C" fn create(_: usize, instance: *mut usize, _: usize) -> i32 {
    unsafe { *instance = 1 };
    0
}

extern "C" fn destroy(_: usize) {}

extern "C" fn schedule(_: usize, _: usize, _: usize, _: usize) -> i32 {
    panic!("nobody catches this")
}

#[unsafe(no_mangle)]
extern "C" fn saetta_scheduler_v1(_: usize, out: &mut Plugin) -> i32 {
    out.major = 1;
    out.calls = [create as *const () as usize, destroy as *const () as usize, schedule as *const () as usize, 0];
    0
}

const JSON: &[u8; 75] = b"{\"id\":\"panic\",\"version\":\"1\",\"abi\":{\"major\":1,\"minor\":0,\"min_host_minor\":0}}";

#[repr(C)]
struct Note {
    words: [u32; 3],
    name: [u8; 12],
    json: [u8; 75],
}

#[used]
#[unsafe(link_section = ".note.saetta.sched")]
static NOTE: Note = Note { words: [12, 75, 1], name: *b"SAETTASCHED\0", json: *JSON };
