#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| onceward_fuzz::key_header(input));
