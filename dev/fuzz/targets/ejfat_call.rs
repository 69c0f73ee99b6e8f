#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| naa_fuzz::ejfat_call::run(data));
