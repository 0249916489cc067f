//! Gathers a batch from the rows of stripes.

use super::{
    StripeReader,
    stripe::{GatherState, Rows},
};
use crate::{
    batch::{Batch, Origin, Span},
    column::{DecodedColumn, Pick, gather},
    decode::DecodedGroup,
    error::{Problem, Result},
};

impl StripeReader {
    /// Copies rows of stripes into a batch. All of them must be in memory.
    pub(super) fn gather(&mut self, local: &[(usize, u64)]) -> Result<Batch> {
        let (mut picks, mut origins) = (
            Vec::with_capacity(local.len()),
            Vec::with_capacity(local.len()),
        );
        let mut skipped = 0;
        let (mut spans, mut sources): (Vec<Span>, Vec<(usize, usize)>) = Default::default();
        for &(index, row) in local {
            let stripe = &mut self.stripes[index];
            let part = match stripe.gathered {
                Some(gathered) if row < stripe.parts[gathered.part].range.end => gathered.part,
                Some(gathered) => gathered.part + 1,
                None => stripe.part_of(row).unwrap_or(0),
            };
            let Rows::Loaded(chunk) = &stripe.parts[part].rows else {
                return Err(Problem::Corrupt("rows that are not in memory".to_owned()).into());
            };
            let offset = (row - chunk.request.start) as u32;
            let mut gathered = match stripe.gathered {
                Some(gathered) if gathered.part == part => gathered,
                _ => {
                    let position = chunk.request.piece.lo + offset;
                    spans.push(Span {
                        group: chunk.request.piece.group,
                        lo: position,
                        hi: position,
                    });
                    GatherState {
                        part,
                        span: (spans.len() - 1) as u32,
                        source: None,
                    }
                }
            };
            spans[gathered.span as usize].hi += 1;
            skipped += u64::from(chunk.unreadable);
            if let Some((row, values)) = chunk.row(offset) {
                let source = *gathered.source.get_or_insert_with(|| {
                    sources.push((index, part));
                    (sources.len() - 1) as u32
                });
                let span = gathered.span;
                picks.push(Pick {
                    source,
                    row: values,
                });
                origins.push(Origin { span, row });
            }
            stripe.gathered = Some(gathered);
        }
        let groups: Vec<&DecodedGroup> = (sources.iter())
            .filter_map(
                |(index, part)| match &self.stripes[*index].parts[*part].rows {
                    Rows::Loaded(chunk) => chunk.data.as_ref(),
                    Rows::Requested(_) => None,
                },
            )
            .collect();
        let columns = (self.schema().fields().iter().enumerate())
            .map(|(number, field)| {
                let sources: Vec<&DecodedColumn> =
                    groups.iter().map(|group| &group.columns[number]).collect();
                gather(field, &sources, &picks)
            })
            .collect::<Result<_>>()?;
        Ok(Batch {
            schema: self.schema().clone(),
            columns,
            rows: origins,
            spans,
            skipped,
        })
    }
}
