#[test]
fn bin() { println!("{}", env!("CARGO_BIN_EXE_corral")); }
