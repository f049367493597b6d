use super::*;
use crate::command::testing::*;
use crate::lock::{Deadline, Grant, Patience, Stored};

const UUID: MintedOwner = *b"00000000-0000-4000-8000-000000000001";

/// The request with these words behind `lock.acquire`.
fn parse(line: &str) -> Result<Request<'_>, Error> {
    let words: Vec<_> = std::iter::once(&b""[..]).chain(words(line)).collect();
    Request::parse(&words, &LIMITS, || UUID)
}

fn owner_and(reply: Reply<'static>) -> Reply<'static> {
    Reply::Array(vec![Reply::Bytes(&UUID), reply])
}

#[test]
fn mistakes_are_found_in_the_order_of_the_page() {
    for (words, error) in [
        ("k a", Error::WrongArity),
        ("k  x FOO", Error::OwnerLength),
        ("k a x FOO", Error::TtlNotPositive),
        ("k a 5 BLOCK x", Error::PatienceOutOfRange),
        ("k a 5 SHARE x BLOCK x", Error::ShareOutOfRange),
        ("k a 5 BLOCK x SHARE x", Error::ShareOutOfRange),
        ("k a 5 EPHEMERAL x BLOCK x", Error::PatienceOutOfRange),
        ("k a 5 BLOCK x EPHEMERAL x", Error::PatienceOutOfRange),
        ("k a 5 EPHEMERAL -1", Error::GraceOutOfRange),
        ("k a 5 NOTIFY turn", Error::NotifyWithoutTicket),
        ("k a 5 BLOCK 9 NOTIFY turn", Error::NotifyWithoutTicket),
        // Those about other locks are found with those about unknown words.
        ("k a 5 ALSO", Error::KeyNumberOutOfRange),
        ("k a 5 SHARE x ALSO 0", Error::KeyNumberOutOfRange),
        ("k a 5 ALSO 1 k FOO", Error::KeyTwice),
        ("k a 5 ALSO 3 x BLOCK", Error::FewerKeys),
        ("k a 5 ALSO 1 x SHARE x BLOCK x", Error::ShareOutOfRange),
        ("k a 5 BLOCK 1 TICKET 1 ALSO 1 x", Error::BlockWithTicket),
        ("k a 5 TICKET 5 NOTIFY also ALSO 1 x", Error::ChannelReserved),
    ] {
        assert_eq!(parse(words).unwrap_err(), error, "{words}");
    }
    let unknown = "FOO, BLOCK, FOO 1, BLOCK 1 BLOCK, BLOCK 1 BLOCK 1, SHARE 1 BLOCK 1 SHARE 1, \
                   SHARE x BLOCK x FOO, EPHEMERAL 1 EPHEMERAL 1, SHARES 1, BLOCKS 1, TICKETS 1, \
                   TICKET 1 NOTICE c, EPHEMERIS 1, FOO 1 ALSO 0, ALSO 1 x ALSO 1 y, ALSO 1 x y";
    for options in unknown.split(", ") {
        assert_eq!(parse(&format!("k a 5 {options}")).unwrap_err(), Error::UnknownOption);
    }
}

#[test]
fn options_come_in_any_order_and_other_locks_among_them() {
    let block = |millis| Some(Wait::Block(Patience::from_millis(millis).unwrap()));
    for (words, share, wait, grace, also) in [
        ("k a 5 BLOCK 7 ephemeral 0 SHARE 2", 2, block(7), Some(0), 0),
        ("k a 5 share 5 BLOCK 1", 5, block(1), None, 0),
        ("k a 5 block 1 Share 5", 5, block(1), None, 0),
        ("k a 5 ALSO 2 x y", 1, None, None, 2),
        ("k a 5 SHARE 0 ALSO 2 SHARE 1 BLOCK 7 EPHEMERAL 1", 0, block(7), Some(1), 2),
        ("k a 5 BLOCK 3 also 2 BLOCK 9 SHARE 2", 2, block(3), None, 2),
        ("ALSO ALSO 5", 1, None, None, 0),
        ("ALSO ALSO 5 ALSO 1 also", 1, None, None, 1),
    ] {
        let request = parse(words).unwrap();
        assert_eq!((request.share.number(), request.wait), (share, wait), "{words}");
        assert_eq!(request.grace().map(Grace::millis), grace, "{words}");
        assert_eq!(request.also().map_or(0, |also| also.keys.len()), also, "{words}");
    }
    assert_eq!(parse("ALSO ALSO 5 ALSO 1 also").unwrap().also().unwrap().keys, [b"also"]);
}

#[test]
fn nobody_waits_for_a_lock_whose_key_is_very_long() {
    let longest = "k".repeat(args::LONGEST_KEY_TO_WAIT_FOR);
    let longer = format!("{longest}k");
    for (options, may_be_longer) in
        [("", true), (" SHARE 0", true), (" BLOCK 1", false), (" TICKET 1", false)]
    {
        for (key, also) in [(&*longest, "l"), (&*longer, "l"), ("l", &*longer)] {
            let is_longer = [key, also].contains(&&*longer);
            let request = format!("{key} a 1000{options} ALSO 1 {also}");
            assert_eq!(parse(&request).is_ok(), may_be_longer || !is_longer, "{options}");
        }
        let alone = format!("{longer} a 1000{options}");
        assert_eq!(parse(&alone).is_ok(), may_be_longer, "{options}");
    }
}

#[test]
fn a_grant_is_published_only_for_a_ticket_that_names_a_channel() {
    let channel = |words: &'static str| parse(words).unwrap().channel();
    assert_eq!(channel("k a 5 TICKET 9 NOTIFY turn"), Some(&b"turn"[..]));
    for words in ["k a 5 TICKET 9", "k a 5 BLOCK 9", "k a 5"] {
        assert_eq!(channel(words), None, "{words}");
    }
    let owner = Owner::new(b"an owner").unwrap();
    assert_eq!(notice(17, owner, b"a key"), b"17 8 an owner a key");
}

#[test]
fn the_fence_is_the_reply_and_who_has_a_made_up_owner_is_told_it() {
    let fence = FenceClock::new().mint(NOW).fence().unwrap();
    for (words, is_minted) in
        [("k a 5", false), ("k a 5 ALSO 1 x", false), ("k * 5", true), ("k * 5 TICKET 5", true)]
    {
        let request = parse(words).unwrap();
        let wanted = request.wanted().unwrap();
        let deadline = Deadline::from_millis(NOW.millis() + 5);
        let grant = Grant { owner: wanted.owner, fence, deadline, share: wanted.share };
        let again = Decision::Again { wanted, fence_number: fence.number() };
        for decision in [Decision::Granted(grant), again] {
            let number = Reply::number(fence.number());
            let reply = if is_minted { owner_and(number) } else { number };
            assert_eq!(request.reply(&decision), Ok(Some(reply)), "{words}");
        }
    }
}

#[test]
fn who_is_not_granted_the_lock_is_told_nothing_yet_unless_it_waits_by_a_made_up_owner() {
    let theirs = Stored::Text { value: b"b", deadline: None };
    for (words, waits, reply) in [
        ("k a 5", false, Reply::Nil),
        ("k a 5 TICKET 5", true, Reply::Nil),
        ("k * 5", false, Reply::Nil),
        ("k * 5 TICKET 5", true, owner_and(Reply::Nil)),
        ("k a 5 TICKET 5 ALSO 1 x", true, Reply::Nil),
        ("k * 5 ALSO 1 x", false, Reply::Nil),
        ("k * 5 TICKET 5 ALSO 1 x", true, owner_and(Reply::Nil)),
    ] {
        let (request, fences) = (parse(words).unwrap(), &mut FenceClock::new());
        let holders = theirs.holders(request.owner().unwrap(), NOW, fences).unwrap();
        let busy = request.decide(&[request.stand(&holders, 0)], NOW, fences).unwrap();
        assert_eq!(matches!(busy, Decision::Wait(_)), waits, "{words}");
        assert_eq!(request.reply(&busy), Ok(Some(reply)), "{words}");
    }
}
