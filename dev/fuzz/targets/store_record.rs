#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| naa_fuzz::store_record::run(data));
