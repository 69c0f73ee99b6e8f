#!/bin/bash
# Makes vmlinuz and initrd.gz of the machine: image.sh OUTPUT-FOLDER KERNEL-PACKAGE INIT-SCRIPT
set -euo pipefail
out=$1 package=$2 init=$3
export PATH=$PATH:/usr/sbin:/sbin
cd "$out"
mkdir -p tree/{bin,proc,sys,dev,modules}

apt-get -qq -o APT::Sandbox::User="$(id -un)" download "$package"
dpkg -x "$package"_*.deb kernel
mv kernel/boot/vmlinuz-* vmlinuz
version=$(ls kernel/lib/modules)
depmod -b kernel "$version"

# rxe refuses a network device ("failed to add") unless a crc32 shash is there first.
wanted=(crc32_generic crc32-pclmul rdma_rxe rdma_ucm ib_uverbs virtio_pci 9p 9pnet_virtio overlay veth virtio_net sch_netem af_packet)
for module in "${wanted[@]}"; do
    # What the kernel has built in is not a module.
    modprobe -d kernel -S "$version" --show-depends "$module" 2>/dev/null || true
done | awk '/^insmod/ && !seen[$2]++ { print $2 }' >modules
while read -r module; do
    cp "$module" tree/modules/
    basename "$module" >>tree/modules/order
done <modules
grep -q '/rdma_rxe\.ko' modules || { echo "$package has no module rdma_rxe" >&2; exit 1; }

cp "$(command -v busybox)" tree/bin/busybox
install -m 755 "$init" tree/init
(cd tree && find . | cpio -o -H newc --quiet | gzip -1) >initrd.gz
rm -rf kernel tree modules ./*.deb
