//! For tests: the running kernel's memory, read by three tiny BPF programs, each a handful of instructions.

use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::btf::TypeKind;
use crate::{KernelMemory, KernelTypes, Unreadable};

/// Bytes read at once, and the size of the one map value.
const BUFFER_BYTES: usize = 256;

const MAP_CREATE: u32 = 0;
const MAP_LOOKUP: u32 = 1;
const PROG_LOAD: u32 = 5;
const PROG_TEST_RUN: u32 = 10;
const MAP_TYPE_ARRAY: u32 = 2;
const PROG_TYPE_SYSCALL: u32 = 31;
const SLEEPABLE: u32 = 1 << 4;
const PROBE_READ_KERNEL: i32 = 113;
const GET_CURRENT_TASK: i32 = 35;

/// The running kernel's memory.
#[derive(Debug)]
pub(crate) struct Live {
    map: OwnedFd,
    reader: OwnedFd,
    current_task: OwnedFd,
    cache_of: Option<OwnedFd>,
}

fn bpf(command: u32, attributes: &mut [u8; 128]) -> Result<i64, Error> {
    // SAFETY: the attributes are 128 readable and writable bytes, all pointers in them are to buffers that outlive the
    // call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_mut_ptr(), attributes.len()) };
    if result < 0 { Err(Error::last_os_error()) } else { Ok(result) }
}

fn attributes(fields: &[(usize, &[u8])]) -> [u8; 128] {
    let mut bytes = [0; 128];
    for (at, field) in fields {
        bytes[*at..*at + field.len()].copy_from_slice(field);
    }
    bytes
}

fn open(command: u32, mut attributes: [u8; 128]) -> Result<OwnedFd, Error> {
    let fd = bpf(command, &mut attributes)?;
    // SAFETY: the kernel has just made this descriptor and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// One instruction: code, destination and source register, offset, immediate.
fn instruction(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> [u8; 8] {
    let (offset, immediate) = (offset.to_le_bytes(), immediate.to_le_bytes());
    [code, to | (from << 4), offset[0], offset[1], immediate[0], immediate[1], immediate[2], immediate[3]]
}

fn load(instructions: &[[u8; 8]]) -> Result<OwnedFd, Error> {
    let code: Vec<u8> = instructions.concat();
    let license = c"GPL";
    open(
        PROG_LOAD,
        attributes(&[
            (0, &PROG_TYPE_SYSCALL.to_ne_bytes()),
            (4, &(instructions.len() as u32).to_ne_bytes()),
            (8, &(code.as_ptr() as u64).to_ne_bytes()),
            (16, &(license.as_ptr() as u64).to_ne_bytes()),
            (44, &SLEEPABLE.to_ne_bytes()),
        ]),
    )
}

impl Live {
    /// The running kernel, or why not.
    pub fn open(types: &KernelTypes) -> Result<Self, Error> {
        let map = open(
            MAP_CREATE,
            attributes(&[
                (0, &MAP_TYPE_ARRAY.to_ne_bytes()),
                (4, &4_u32.to_ne_bytes()),
                (8, &(BUFFER_BYTES as u32).to_ne_bytes()),
                (12, &1_u32.to_ne_bytes()),
            ]),
        )?;
        // r1 = address of the map's one value
        let value = [instruction(0x18, 1, 2, 0, map.as_raw_fd()), instruction(0, 0, 0, 0, 0)];
        let argument = |to, at| instruction(0x79, to, 6, at, 0);
        let (keep_context, exit) = (instruction(0xbf, 6, 1, 0, 0), instruction(0x95, 0, 0, 0, 0));
        let store_result = [value[0], value[1], instruction(0x7b, 1, 0, 0, 0), instruction(0xb7, 0, 0, 0, 0), exit];
        let reader = load(&[
            keep_context,
            value[0],
            value[1],
            argument(3, 0),
            argument(2, 8),
            instruction(0xb7, 0, 0, 0, 1),
            instruction(0x25, 2, 0, 1, BUFFER_BYTES as i32),
            instruction(0x85, 0, 0, 0, PROBE_READ_KERNEL),
            exit,
        ])?;
        let current_task = load(&[&[instruction(0x85, 0, 0, 0, GET_CURRENT_TASK)], &store_result[..]].concat())?;
        let cache_of = types.vmlinux.by_name(TypeKind::Function, "bpf_get_kmem_cache").next().and_then(|id| {
            let call = [keep_context, argument(1, 0), instruction(0x85, 0, 2, 0, id as i32)];
            load(&[&call[..], &store_result[..]].concat()).ok()
        });
        Ok(Self { map, reader, current_task, cache_of })
    }

    fn run(&self, program: &OwnedFd, context: [u64; 2]) -> Result<u32, Error> {
        let mut attributes = attributes(&[
            (0, &program.as_raw_fd().to_ne_bytes()),
            (40, &16_u32.to_ne_bytes()),
            (48, &(context.as_ptr() as u64).to_ne_bytes()),
        ]);
        bpf(PROG_TEST_RUN, &mut attributes)?;
        Ok(u32::from_ne_bytes([attributes[4], attributes[5], attributes[6], attributes[7]]))
    }

    fn value(&self) -> Result<[u8; BUFFER_BYTES], Error> {
        let (key, mut value) = (0_u32, [0; BUFFER_BYTES]);
        let mut attributes = attributes(&[
            (0, &self.map.as_raw_fd().to_ne_bytes()),
            (8, &(&raw const key as u64).to_ne_bytes()),
            (16, &(value.as_mut_ptr() as u64).to_ne_bytes()),
        ]);
        bpf(MAP_LOOKUP, &mut attributes)?;
        Ok(value)
    }

    fn result(&self, program: &OwnedFd, argument: u64) -> Option<u64> {
        self.run(program, [argument, 0]).ok()?;
        let value = self.value().ok()?;
        Some(u64::from_ne_bytes(*value.first_chunk()?)).filter(|result| *result != 0)
    }

    /// Address of the current `struct task_struct`.
    pub fn current_task(&self) -> u64 {
        self.result(&self.current_task, 0).expect("every program runs in some task")
    }

    /// Address of the `struct kmem_cache` of the object at this address.
    pub fn cache_of(&self, address: u64) -> Option<u64> {
        self.result(self.cache_of.as_ref()?, address)
    }
}

impl KernelMemory for Live {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        for (index, piece) in into.chunks_mut(BUFFER_BYTES).enumerate() {
            let at = address.wrapping_add((index * BUFFER_BYTES) as u64);
            let is_read = self.run(&self.reader, [at, piece.len() as u64]).is_ok_and(|result| result == 0);
            let value = self.value().ok().filter(|_| is_read).ok_or(Unreadable { address: at })?;
            piece.copy_from_slice(&value[..piece.len()]);
        }
        Ok(())
    }
}
