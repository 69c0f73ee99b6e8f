#!/bin/busybox sh
# First program of the machine: loads the modules, sees the host's files through a throw-away overlay, runs guest.sh.
/bin/busybox --install -s /bin 2>/dev/null
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
ln -s /proc/self/fd /dev/fd
for std in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${std%:*}" "/dev/${std#*:}"; done
while read -r module; do insmod "/modules/$module"; done </modules/order
mkdir -p /host /rw /root
mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=524288,cache=loose host /host
mount -t tmpfs -o size=60% tmpfs /rw
mkdir -p /rw/upper /rw/work
mount -t overlay overlay -o lowerdir=/host,upperdir=/rw/upper,workdir=/rw/work /root
for fs in proc sys dev; do mount --move "/$fs" "/root/$fs"; done
mkdir -p /root/dev/shm /root/dev/pts
mount -t tmpfs tmpfs /root/dev/shm
mount -t devpts devpts /root/dev/pts
mount -t tmpfs tmpfs /root/run
mkdir -p /root/run/rxe-vm
mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288 control /root/run/rxe-vm
# rxe_vm=a or rxe_vm=b is on the command line of the kernel.
chroot /root /bin/bash /run/rxe-vm/guest.sh "$rxe_vm"
poweroff -f
