//! A batch from the rows of stripes that are in memory.

use super::{
    StripeReader,
    stripe::{Mark, Rows},
};
use crate::{
    batch::{Batch, Origin, Span},
    column::{Decoded, Pick, gather},
    decode::DecodedGroup,
    error::{Problem, Result},
};

impl StripeReader {
    /// Copies rows of stripes together, all of which are in memory.
    pub(super) fn gather(&mut self, own: &[(usize, u64)]) -> Result<Batch> {
        let (mut picks, mut origins) =
            (Vec::with_capacity(own.len()), Vec::with_capacity(own.len()));
        let (mut spans, mut sources): (Vec<Span>, Vec<(usize, usize)>) = Default::default();
        for &(place, row) in own {
            let stripe = &mut self.stripes[place];
            let part = match stripe.mark {
                Some(mark) if row < stripe.parts[mark.part].range.end => mark.part,
                Some(mark) => mark.part + 1,
                None => stripe.part_of(row).unwrap_or(0),
            };
            let Rows::Here(chunk) = &stripe.parts[part].rows else {
                return Err(Problem::Corrupt("rows that are not in memory".to_owned()).into());
            };
            let offset = (row - chunk.cut.at) as u32;
            let mut mark = match stripe.mark {
                Some(mark) if mark.part == part => mark,
                _ => {
                    let position = chunk.cut.piece.lo + offset;
                    spans.push(Span {
                        group: chunk.cut.piece.group,
                        lo: position,
                        hi: position,
                    });
                    Mark {
                        part,
                        span: (spans.len() - 1) as u32,
                        source: None,
                    }
                }
            };
            spans[mark.span as usize].hi += 1;
            if let Some((row, values)) = chunk.row(offset) {
                let source = *mark.source.get_or_insert_with(|| {
                    sources.push((place, part));
                    (sources.len() - 1) as u32
                });
                let span = mark.span;
                picks.push(Pick {
                    source,
                    row: values,
                });
                origins.push(Origin { span, row });
            }
            stripe.mark = Some(mark);
        }
        let groups: Vec<&DecodedGroup> = (sources.iter())
            .filter_map(
                |(place, part)| match &self.stripes[*place].parts[*part].rows {
                    Rows::Here(chunk) => chunk.data.as_ref(),
                    Rows::Asked(_) => None,
                },
            )
            .collect();
        let columns = (self.schema().fields().iter().enumerate())
            .map(|(number, field)| {
                let sources: Vec<&Decoded> =
                    groups.iter().map(|group| &group.columns[number]).collect();
                gather(field, &sources, &picks)
            })
            .collect::<Result<_>>()?;
        Ok(Batch {
            schema: self.schema().clone(),
            columns,
            rows: origins,
            spans,
        })
    }
}
