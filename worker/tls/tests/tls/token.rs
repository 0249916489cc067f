//! Enrolment by a join token: which proofs are worth an identity.

use std::time::{Duration, SystemTime};

use crate::pair::{Pair, authority, identity, server};
use elasticrun_tls::{
    ClientConfig, Role,
    enrol::CHANNEL,
    token::{ParseError, Proof, Refusal, Side, Token, Tokens},
};

const HOUR: Duration = Duration::from_secs(3600);

fn token() -> Token {
    Token::random(SystemTime::now() + HOUR).expect("randomness")
}

/// A connection in which a host enrols.
fn enrolling() -> Pair {
    let driver = identity(&authority(), Role::Driver);
    let accepts = server(&driver, &[Role::Agent])
        .with_enrolment(&driver)
        .expect("a configuration");
    Pair::connected(
        &ClientConfig::enrolling().expect("a configuration"),
        &accepts,
    )
}

fn channels(pair: &Pair) -> ([u8; 32], [u8; 32]) {
    let client = pair.client.exporter(CHANNEL).expect("established");
    (client, pair.server.exporter(CHANNEL).expect("established"))
}

#[test]
fn a_host_and_its_driver_prove_the_token_to_each_other() {
    let given = token();
    let tokens = Tokens::new(vec![token(), given.clone(), token()]);
    // The host has read the token from a file.
    let host: Token = given.expose().parse().expect("a token");
    assert_eq!(host, given);
    let (client, server) = channels(&enrolling());
    let found = tokens.find(host.id(), SystemTime::now()).expect("valid");
    assert_eq!(found, &given);
    let proof = found.prove(Side::Driver, &server);
    host.verify(Side::Driver, &client, &proof)
        .expect("the driver");
    let proof = host.prove(Side::Host, &client);
    found.verify(Side::Host, &server, &proof).expect("the host");
}

#[test]
fn a_proof_of_one_side_is_none_of_the_other() {
    let token = token();
    let (client, server) = channels(&enrolling());
    let reflected = token.prove(Side::Driver, &server);
    let forged = Err(Refusal::Forged(token.id()));
    assert_eq!(token.verify(Side::Host, &client, &reflected), forged);
    let own = token.prove(Side::Host, &client);
    assert_eq!(token.verify(Side::Driver, &client, &own), forged);
}

#[test]
fn a_forged_proof_is_refused() {
    let token = token();
    let (client, server) = channels(&enrolling());
    let good = token.prove(Side::Host, &client);
    for bit in 0..256 {
        let mut forged = good;
        forged.0[bit / 8] ^= 1 << (bit % 8);
        assert!(token.verify(Side::Host, &server, &forged).is_err());
    }
    assert!(token.verify(Side::Host, &server, &Proof([0; 32])).is_err());
    assert!(token.verify(Side::Host, &server, &good).is_ok());
}

#[test]
fn a_replayed_proof_is_worth_nothing_in_another_connection() {
    let token = token();
    let (client, _) = channels(&enrolling());
    let recorded = token.prove(Side::Host, &client);
    let (_, server) = channels(&enrolling());
    assert!(token.verify(Side::Host, &server, &recorded).is_err());
    let recorded = token.prove(Side::Driver, &server);
    assert!(token.verify(Side::Driver, &client, &recorded).is_err());
}

#[test]
fn a_man_in_the_middle_cannot_pass_proofs_on() {
    // He speaks to the host as a driver, and to the driver as a host: two connections.
    let token = token();
    let (host, _) = channels(&enrolling());
    let (_, driver) = channels(&enrolling());
    let passed = token.prove(Side::Driver, &driver);
    assert!(token.verify(Side::Driver, &host, &passed).is_err());
    let passed = token.prove(Side::Host, &host);
    assert!(token.verify(Side::Host, &driver, &passed).is_err());
}

#[test]
fn a_foreign_token_is_refused_by_its_id_or_by_its_proof() {
    let (ours, theirs) = (token(), token());
    let tokens = Tokens::new(vec![ours.clone()]);
    let unknown = Refusal::Unknown(theirs.id());
    assert_eq!(tokens.find(theirs.id(), SystemTime::now()), Err(unknown));
    let (client, server) = channels(&enrolling());
    let proof = theirs.prove(Side::Host, &client);
    let forged = Err(Refusal::Forged(ours.id()));
    assert_eq!(ours.verify(Side::Host, &server, &proof), forged);
    let proof = theirs.prove(Side::Driver, &server);
    assert!(ours.verify(Side::Driver, &client, &proof).is_err());
}

#[test]
fn an_expired_token_is_refused_to_the_second_by_the_drivers_clock() {
    let expiry = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let token = Token::random(expiry).expect("randomness");
    let tokens = Tokens::new(vec![token.clone()]);
    let before = expiry - Duration::from_millis(1);
    assert_eq!(tokens.find(token.id(), before), Ok(&token));
    let expired = Err(Refusal::Expired(token.id()));
    assert_eq!(tokens.find(token.id(), expiry), expired);
    assert_eq!(tokens.find(token.id(), expiry + 10 * HOUR), expired);
    // A host that changes the expiry has another token.
    let changed = token.expose().replace("1800000000", "1900000000");
    assert_eq!(changed.parse::<Token>(), Err(ParseError::Damaged));
}

#[test]
fn texts_that_are_no_token_are_explained() {
    let good = token().expose().to_string();
    assert!(format!("\n {good}\n").parse::<Token>().is_ok());
    let parts: Vec<_> = good.split('.').collect();
    for (text, why) in [
        ("", ParseError::NotGenerated),
        ("correct horse battery staple", ParseError::NotGenerated),
        (&"0af3".repeat(16), ParseError::NotGenerated),
        ("er3.00000000.x.1", ParseError::NotGenerated),
        ("er2.", ParseError::Malformed("it has not four parts")),
        (
            &format!("{good}.1"),
            ParseError::Malformed("it has not four parts"),
        ),
        (
            &format!(
                "er2.{}.{}.{}",
                parts[1].to_uppercase() + "0",
                parts[2],
                parts[3]
            ),
            ParseError::Malformed("its id has not 8 hexadecimal digits"),
        ),
        (
            &format!("er2.{}.{}=.{}", parts[1], parts[2], parts[3]),
            ParseError::Malformed("its secret is not 43 characters of base64 for URLs"),
        ),
        (
            &format!("er2.{}.{}.0{}", parts[1], parts[2], parts[3]),
            ParseError::Malformed("its expiry is no number of at most 11 digits"),
        ),
    ] {
        assert_eq!(text.parse::<Token>(), Err(why), "{text}");
    }
}

#[test]
fn debug_output_has_no_secret() {
    let token = token();
    let text = format!("{token:?} {:?}", Tokens::new(vec![token.clone()]));
    let exposed = token.expose();
    let secret = exposed.split('.').nth(2).expect("a secret");
    assert!(!text.contains(secret) && text.len() < 200, "{text}");
}

#[test]
fn tokens_are_equal_if_secret_and_expiry_are() {
    let expiry = SystemTime::now() + HOUR;
    let one = Token::random(expiry).expect("randomness");
    assert_eq!(one, one.clone());
    assert_ne!(one, Token::random(expiry).expect("randomness"));
}
