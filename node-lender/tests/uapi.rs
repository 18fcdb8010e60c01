//! What both ends of protocol 3 go by is the same in C: a compiler holds `kernel-module/uapi/wire.h` to each number.

use std::io::Write;
use std::process::{Command, Stdio};

use node_lender::wire::*;

/// What C calls a number, and what it is here.
fn numbers() -> Vec<(&'static str, u64)> {
    vec![
        ("TIDE_MAGIC", MAGIC.into()),
        ("TIDE_PROTOCOL", VERSION.into()),
        ("TIDE_PROTOCOL_OLDEST", VERSION.into()),
        ("TIDE_GET_MAX", GET_MAX.into()),
        ("TIDE_PUT_MAX", PUT_MAX.into()),
        ("TIDE_NOTICE_MAX", NOTICE_MAX.into()),
        ("TIDE_MAX_LANES", LANES_MAX.into()),
        ("TIDE_REKEY_FRAMES", REKEY_FRAMES),
        ("TIDE_FEATURES", FEATURES),
        ("TIDE_MESSAGE_1", Message::First as u64),
        ("TIDE_MESSAGE_2", Message::Second as u64),
        ("TIDE_MESSAGE_3", Message::Third as u64),
        ("TIDE_REJECTION", Message::Rejection as u64),
        ("TIDE_WELCOME", Verdict::Welcome as u64),
        ("TIDE_ANSWER_UNKNOWN", Verdict::Unknown as u64),
        ("TIDE_ANSWER_DISABLED", Verdict::Disabled as u64),
        ("TIDE_ANSWER_LIMITS", Verdict::Limits as u64),
        ("TIDE_REJECT_VERSION", Reject::Version as u64),
        ("TIDE_REJECT_IDENTITY", Reject::Identity as u64),
        ("TIDE_GET", Kind::Get as u64),
        ("TIDE_DATA", Kind::Data as u64),
        ("TIDE_PUT", Kind::Put as u64),
        ("TIDE_PUT_ACK", Kind::PutAck as u64),
        ("TIDE_EVICTED", Kind::Evicted as u64),
        ("TIDE_FORGET", Kind::Forget as u64),
        ("TIDE_PING", Kind::Ping as u64),
        ("TIDE_PONG", Kind::Pong as u64),
        ("TIDE_GRANT", Kind::Grant as u64),
        ("TIDE_RESIZE", Kind::Resize as u64),
        ("TIDE_EVICTED_BEFORE", Kind::EvictedBefore as u64),
        ("TIDE_FLAG_EXCLUSIVE", EXCLUSIVE.into()),
        ("TIDE_FLAG_RESUMED", RESUMED.into()),
        ("TIDE_FLAG_HOLD", HOLD.into()),
        ("TIDE_TAG_SIZE", TAG as u64),
        ("sizeof(TIDE_PROLOGUE) - 1", PROLOGUE.len() as u64),
        ("sizeof(struct tide_message_head)", HEAD as u64),
        ("sizeof(struct tide_hello)", HELLO as u64),
        ("sizeof(struct tide_answer)", ANSWER as u64),
        ("sizeof(struct tide_message_1)", (HEAD + MESSAGE_1) as u64),
        ("sizeof(struct tide_message_2)", (HEAD + MESSAGE_2) as u64),
        ("sizeof(struct tide_message_3)", (HEAD + TAG) as u64),
        ("sizeof(struct tide_rejection)", rejection(Reject::Version).len() as u64),
        ("sizeof(struct tide_frame)", FRAME as u64),
        ("sizeof(struct tide_get_item)", GET_ITEM as u64),
        ("sizeof(struct tide_data_item)", DATA_ITEM as u64),
        ("sizeof(struct tide_put_item)", PUT_ITEM as u64),
        ("sizeof(struct tide_page_id)", EVICTED_ITEM as u64),
        ("sizeof(struct tide_forget_item)", FORGET_ITEM as u64),
    ]
}

/// What the compiler says of a program that is right if the header has these numbers.
fn compiled(numbers: &[(&str, u64)]) -> String {
    let mut source = "#define __packed __attribute__((packed))\n#include \"wire.h\"\n".to_owned();
    for (name, number) in numbers {
        source += &format!("_Static_assert({name} == {number}, \"{name} is {number} in Rust\");\n");
    }
    let mut compiler = Command::new("cc");
    compiler.args(["-fsyntax-only", "-I", "../kernel-module/uapi", "-x", "c", "-"]);
    let mut running = compiler.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    running.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
    let ended = running.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.success(), said.is_empty(), "{said}");
    said
}

#[test]
fn numbers_and_sizes_are_those_of_the_header() {
    assert_eq!(compiled(&numbers()), "");
}

/// A number that is another one is told.
#[test]
fn another_number_is_refused() {
    assert!(compiled(&[("TIDE_PING", Kind::Pong as u64)]).contains("TIDE_PING is 8 in Rust"));
}
