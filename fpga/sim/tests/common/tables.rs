//! Writes the load balancer's tables through a module's ports `write` and `image`.

use ejfat::lb::{DropCause, Image, ImageTable};
use naa_fpga::{Bench, Port, Writer};

/// The two images of a module. One of them is in use.
pub(crate) struct Images {
    write: Port,
    image: Port,
    images: [Image; 2],
    chosen: usize,
}

impl Images {
    /// Writes every entry of both images, because memories hold anything when they are switched on.
    pub(crate) fn new(bench: &mut Bench) -> Self {
        let [write, image] = ["write", "image"].map(|name| bench.model.port(name));
        let images = Self { write, image, images: Default::default(), chosen: 0 };
        for image in [0, 1] {
            for table in ImageTable::ALL {
                for (at, entry) in Image::default().table(table).iter().enumerate() {
                    images.put(bench, image, table, at, entry);
                }
            }
        }
        images
    }

    fn put(&self, bench: &mut Bench, image: usize, table: ImageTable, at: usize, entry: &[u64; 4]) {
        let entry = entry.iter().fold(Writer::default(), |write, word| write.field((*word).into(), 64));
        let write = entry.field(at as u128, 14).field(image as u128, 1).field(table as u128, 3);
        write.give(&mut bench.model, self.write);
        bench.cycle(&mut []);
        // Nothing is written in the next cycles.
        let none = Writer::default().field(0, 128).field(0, 128).field(0, 15).field(7, 3);
        none.give(&mut bench.model, self.write);
    }

    /// Fills the image that is not in use, and then uses it. No packet may be inside the module.
    pub(crate) fn load(&mut self, bench: &mut Bench, image: Image) {
        let free = 1 - self.chosen;
        let before = std::mem::replace(&mut self.images[free], image.clone());
        for (table, at, entry) in image.changes(&before) {
            self.put(bench, free, table, at, entry);
        }
        self.chosen = free;
        bench.model.set(self.image, free as u64);
    }

    pub(crate) fn chosen(&self) -> usize {
        self.chosen
    }

    pub(crate) fn get(&self, image: usize) -> &Image {
        &self.images[image]
    }
}

/// The cause that has this number in the RTL. `None` for the number that means that the packet is forwarded.
pub(crate) fn cause(number: u128) -> Option<DropCause> {
    DropCause::ALL.get(number as usize).copied()
}
