#[test]
fn bin() { println!("{}", env!("CARGO_BIN_EXE_exit_clean")); println!("{}", env!("CARGO_BIN_EXE_corral")); }
