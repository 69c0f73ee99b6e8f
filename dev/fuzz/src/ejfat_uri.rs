//! EJFAT URIs: what is read is written so that it reads the same.

use ejfat::uri::EjfatUri;

pub fn run(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let Ok(uri) = text.parse::<EjfatUri>() else { return };
    let written = uri.to_string();
    assert_eq!(written.parse().as_ref(), Ok(&uri), "{written}");
    assert_eq!(written.parse::<EjfatUri>().unwrap().to_string(), written);
}
