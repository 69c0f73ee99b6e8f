#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| naa_fuzz::roce_cm_pair::run(data));
