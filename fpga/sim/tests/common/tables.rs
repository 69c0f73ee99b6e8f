//! Writes the load balancer's tables through a module's ports `write` and `image`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ejfat::lb::{DropCause, Image, ImageTable, LbId, Route};
use naa_fpga::{Bench, Port, Reader, Writer};

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

    /// What a `route_t` of the RTL says of a packet that was looked up in this image: the number of its load balancer, which means nothing if the
    /// packet belongs to none, and its route. The fields of the packet's headers are left to the reader.
    pub(crate) fn route(&self, image: usize, fields: &mut Reader) -> (u8, Result<Route, DropCause>) {
        let mac = fields.field(48);
        let sum = fields.field(16);
        let address = fields.field(128);
        let port = fields.field(16) as u16;
        let keep_lb_header = fields.field(1) == 1;
        let image = &self.images[image];
        let member = image.member(fields.field(10) as usize);
        let epoch = image.epoch(fields.field(10) as usize);
        let slot = fields.field(14) as u16;
        let (_set, _is_known, lb) = (fields.field(5), fields.field(1), fields.field(3) as u8);
        if let Some(&cause) = DropCause::ALL.get(fields.field(4) as usize) {
            return (lb, Err(cause));
        }
        let (of, member) = member.unwrap();
        assert_eq!(of.get(), lb);
        let words = (0..8).map(|word| address >> (16 * word) & 0xffff);
        assert_eq!(sum % 0xffff, words.sum::<u128>() % 0xffff, "the sum of the address {address:x}");
        let is_v4 = address >> 32 == 0;
        let ip: IpAddr =
            if is_v4 { Ipv4Addr::from(address as u32).into() } else { Ipv6Addr::from(address).into() };
        let mac = (mac != 0).then(|| mac.to_be_bytes()[10..].try_into().unwrap());
        let to = SocketAddr::new(ip, port);
        let lb_id = LbId::new(lb).unwrap();
        (lb, Ok(Route { lb: lb_id, epoch: epoch.unwrap(), slot, member, mac, to, keep_lb_header }))
    }

    /// The number of the set of tables that a `route_t` names, whether it says that some set allows the source, and its load balancer.
    pub(crate) fn set(&self, fields: &mut Reader) -> (usize, bool, u8) {
        // The fields from the MAC address to the slot.
        let _ = (fields.field(128), fields.field(48 + 16 + 16 + 1 + 10 + 10 + 14));
        (fields.field(5) as usize, fields.field(1) == 1, fields.field(3) as u8)
    }

    /// The number of the set of tables to which a tick of a load balancer belongs. The first one has all ticks before the second.
    pub(crate) fn set_of(&self, image: usize, lb: u8, tick: u64) -> usize {
        let froms = self.images[image].sets().find(|(of, _)| of.get() == lb);
        froms.and_then(|(_, froms)| froms.iter().rposition(|&from| from <= tick)).unwrap_or(0)
    }
}
