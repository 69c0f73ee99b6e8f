//! Requests of the server, one after the other.
#![allow(unsafe_code)]

use std::{
    ffi::CStr,
    io::{self, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use mrsp::catalogue::Direction;
use rustix::{
    cmsg_space,
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send},
};

use super::{
    abi::{KernelCall, KernelData},
    library::{Library, LoadedKernel},
    mapping::ChildMapping,
};
use crate::message::{
    ChildReply, ChildRequest, MOST_BYTES, MOST_FILES, MOST_TEXT, Mapped, clipped, encode_done,
};

pub(super) struct Child {
    socket: OwnedFd,
    libraries: Vec<Library>,
    regions: Vec<(Mapped, ChildMapping)>,
    /// Regions that are not internal, which come first.
    parameters: u32,
    /// Given to kernels anew for each call.
    data: Vec<KernelData>,
    reply: Vec<u8>,
}

impl Child {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            libraries: Vec::new(),
            regions: Vec::new(),
            parameters: 0,
            data: Vec::new(),
            reply: Vec::new(),
        }
    }

    pub(super) fn run(mut self) -> io::Result<()> {
        let mut buffer = vec![0; MOST_BYTES];
        let own = std::process::id();
        loop {
            let (len, files) = self.receive(&mut buffer)?;
            if len == 0 {
                return Ok(());
            }
            let request = ChildRequest::decode(&buffer[..len]);
            let request = request.ok_or_else(|| io::Error::other("the server sent what is no request"))?;
            self.answer(&request, &files);
            if std::process::id() != own {
                // Only the process that the server called answers, or its end does. This one is a fork of it.
                let why = "a process that a kernel forked returned from the kernel; leave it by _exit()";
                return Err(io::Error::other(why));
            }
            send(&self.socket, &self.reply, SendFlags::NOSIGNAL)?;
        }
    }

    /// A message and the files that came with it; no bytes when the server closed the socket.
    fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MOST_FILES))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(buffer)];
        let received = rustix::io::retry_on_intr(|| {
            recvmsg(&self.socket, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC)
        })?;
        let mut files = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(sent) = message {
                files.extend(sent);
            }
        }
        Ok((received.bytes, files))
    }

    fn answer(&mut self, request: &ChildRequest<'_>, files: &[OwnedFd]) {
        let result = match *request {
            ChildRequest::Load(path) => self.load(path),
            ChildRequest::Map(ref regions) => self.map(regions, files),
            ChildRequest::Call { sequence, user, code } => self.call(sequence, user, code),
        };
        if let Err(why) = result {
            ChildReply::Error(clipped(&why)).encode(&mut self.reply);
        }
    }

    fn load(&mut self, path: &Path) -> Result<(), String> {
        let library = Library::load(path)?;
        if library.catalogue.len() >= MOST_BYTES {
            return Err(format!("describes its kernels in more than {MOST_BYTES} bytes; shorten the texts"));
        }
        ChildReply::Table(&library.catalogue).encode(&mut self.reply);
        self.libraries.push(library);
        Ok(())
    }

    fn map(&mut self, regions: &[Mapped], files: &[OwnedFd]) -> Result<(), String> {
        if regions.len() != files.len() {
            return Err("the files of regions did not arrive; raise `ulimit -n`".into());
        }
        for (region, file) in regions.iter().zip(files) {
            let mapping = ChildMapping::new(file.as_fd(), region.offset, region.size)
                .map_err(|error| format!("cannot map a region of {} bytes: {error}", region.size))?;
            self.regions.push((*region, mapping));
            self.parameters += u32::from(region.direction != Direction::Internal);
        }
        ChildReply::Mapped.encode(&mut self.reply);
        Ok(())
    }

    fn call(&mut self, sequence: u64, user: u32, code: u8) -> Result<(), String> {
        let kernel = self.kernel(code).ok_or_else(|| format!("kernel {code} is not loaded"))?.compute;
        self.data.clear();
        self.data.extend(self.regions.iter().map(|(region, mapping)| KernelData {
            address: mapping.address(),
            size: region.size,
            produced: region.size,
            direction: region.direction as u32,
            reserved: 0,
        }));
        let mut text = [0_u8; MOST_TEXT];
        let mut call = KernelCall {
            struct_size: size_of::<KernelCall>() as u32,
            user,
            data_count: self.data.len() as u32,
            parameter_count: self.parameters,
            data: self.data.as_mut_ptr(),
            text: text.as_mut_ptr().cast(),
            text_size: text.len() as u32,
            reserved: 0,
        };
        // SAFETY: as the header declares it: the call and what it points to live and are the kernel's meanwhile. It
        // is somebody else's code; one that does harm ends this process, which has nothing but its session's data.
        let code = unsafe { kernel(&mut call) };
        let text = CStr::from_bytes_until_nul(&text).map_or(&[][..], CStr::to_bytes);
        let text = if code == 0 { &[] } else { text };
        encode_done(&mut self.reply, sequence, code, self.data.iter().map(|data| data.produced), text);
        Ok(())
    }

    fn kernel(&self, code: u8) -> Option<&LoadedKernel> {
        self.libraries.iter().flat_map(|library| &library.kernels).find(|kernel| kernel.code == code)
    }
}
